"""`kops log recover`: saves every intact batch of damaged logs to another place.

In: partitions with all copies of their segments. Out: new segments, jsonl or Parquet. The input is never changed.
"""
