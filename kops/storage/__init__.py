"""The files of a broker: the logs of its partitions, and their start, cleaning and deletion.

In: bytes to append, offsets to read, settings. Out: batches, positions, and files as Kafka writes them. The caller passes in the clock and
the file interface. The modules directly in this package implement one log. The rooms hold its parts and the code that manages logs.
"""
