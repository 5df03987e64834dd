"""The state of streams groups: tasks, members, groups, and a member's next step.

In: values of records, requests. Out: new members and their records.
"""
