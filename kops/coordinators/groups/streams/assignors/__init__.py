"""Assigns the tasks of a Streams application to members.

In: members, their processes and previous tasks, numbers of tasks. Out: a target assignment for each member.
"""
