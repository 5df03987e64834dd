"""Merges the copies of a partition: runs of intact batches of each copy, merged into one log, and the lost offsets.

In: files for reading. Out: runs, conflicts, lost offsets, batches. Nothing is written.
"""
