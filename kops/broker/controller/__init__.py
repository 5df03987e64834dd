"""The controller of a node, and the APIs that it serves.

In: requests of brokers and clients. Out: records for the metadata log, and responses once these are committed.
"""
