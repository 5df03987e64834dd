"""What storage does away from the loop of its owner, because it waits for the disk.

In: what is to be synced, written or removed, with everything that takes. Out: the same on the disk, and nothing else changed. No module
here knows a log; whoever has something done decides on the loop what its end means.
"""
