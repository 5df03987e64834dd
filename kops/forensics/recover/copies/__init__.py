"""What the copies of a partition hold together: runs of intact batches of each, merged into one log, and what is gone.

In: files for reading. Out: runs, conflicts, lost offsets, batches. Nothing is written.
"""
