"""The APIs about the cluster: metadata, settings, log directories.

In: one request. Out: its response, from the metadata image or from the controller.
"""
