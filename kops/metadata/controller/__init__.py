"""The controller of a cluster (Kafka's QuorumController), as a pure core.

In: requests and times. Out: records and responses. It has no clock, socket, file or random number: times are arguments, random draws
come from `settings.Draws`.
"""
