"""What a broker does with its log directories and logs when it starts.

In: directories. Out: loaded logs, and a report of what was rejected, set aside or cut off.
"""
