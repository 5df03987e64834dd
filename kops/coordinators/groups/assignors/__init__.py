"""The partition assignors of the broker: range and uniform for consumer groups, simple for share groups.

In: members with their topics and their current assignments, in the order of Kafka's maps. Out: the target assignment of each member.
"""
