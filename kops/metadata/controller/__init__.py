"""The controller of a cluster (Kafka's QuorumController), as a pure core.

In: requests and times. Out: records and responses. The package has no clock, socket, file or source of random numbers. Times are arguments,
and random numbers come from `settings.Draws`.
"""
