"""Work for side threads: syncs, writes and deletions, which wait for the disk and would block the loop.

In: open files, paths and bytes. Out: the same on the disk. The work touches no state of a log. The owner of a log starts it on the loop,
and changes the state on the loop when the work has ended.
"""
