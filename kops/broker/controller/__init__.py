"""The controller in its process, and the APIs of its listener.

In: requests of brokers and clients. Out: records for the metadata log, and responses once they are committed.
"""
