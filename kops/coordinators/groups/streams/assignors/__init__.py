"""Who gets which task of a Streams application.

In: members, their processes and previous tasks, numbers of tasks. Out: a target assignment for each member.
"""
