"""The object that joins the parts of a broker, and the settings they are given.

In: the configuration of the node and its changes. Out: settings for each part.
"""
