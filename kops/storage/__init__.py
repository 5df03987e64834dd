"""The files of a broker: the logs of its partitions, and their start, cleaning and deletion.

In: bytes to append, offsets to read, settings. Out: batches, positions, files as Kafka writes them. The clock and the interface to files
are passed in. The modules here are one log; what stands below and around it is in the rooms.
"""
