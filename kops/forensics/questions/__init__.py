"""Questions about the contents of logs: what is in them, where a record is, what happened when, what the cleaner would do.

In: partition directories, or the batches and damage of a part of one. Out: rows. `kops log` asks on one machine, `kops scan` on Spark;
both use this room, so their answers are the same. Nothing is written. The time is an argument.
"""
