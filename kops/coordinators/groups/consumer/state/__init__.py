"""The state of consumer groups: members, groups, a member's next step, and what members with the classic protocol send.

In: values of records, requests. Out: new members, and the records that make them.
"""
