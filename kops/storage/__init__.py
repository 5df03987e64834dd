"""The files of a broker: the logs of its partitions, and their start, cleaning and deletion.

In: bytes to append, offsets to read, settings. Out: batches, positions, files as Kafka writes them. The caller passes in the clock and the
interface to files. The modules of this package are one log. Its rooms contain what a log consists of and what manages it.
"""
