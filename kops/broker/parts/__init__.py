"""The object that holds all parts of a broker, and the settings that each part gets.

In: the configuration of the node and its changes. Out: the settings of each part.
"""
