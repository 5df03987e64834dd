"""The roles of a node and the transitions between them.

In: events and the time. Out: the next role. What must be durable is written before a transition counts.
"""
