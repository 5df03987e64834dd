"""The state of consumer groups: members, groups, a member's next step, and the embedded data of members with the classic protocol.

In: values of records, requests. Out: new members and their records.
"""
