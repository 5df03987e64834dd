"""The contents of the files of a log directory, as documents and as the text of Kafka's own dump tool.

In: files of the inventory and filters. Out: documents (batches, records, index entries, snapshots, checkpoints) or lines of text.
"""
