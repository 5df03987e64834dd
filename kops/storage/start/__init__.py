"""What a broker's start does with its log directories and with each partition.

In: directories. Out: loaded logs, and what was rejected, set aside or cut on the way.
"""
