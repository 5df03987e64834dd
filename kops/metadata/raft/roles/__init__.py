"""The roles of a Raft node (follower, candidate, leader and others) and the transitions between them.

In: events and the time. Out: the next role. State that must be durable is written before a transition takes effect.
"""
