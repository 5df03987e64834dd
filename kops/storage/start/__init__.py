"""The start of a broker: its log directories and the logs in them.

In: directories. Out: loaded logs, and a report of what was rejected, set aside or cut off.
"""
