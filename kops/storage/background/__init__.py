"""Work for side threads: syncs, writes and deletions, which would block the loop while they wait for the disk.

In: open files, paths and bytes. Out: the same, on disk. The work touches no state of a log. The owner of a log starts the work on the loop.
When the work has finished, the owner changes the state, again on the loop.
"""
