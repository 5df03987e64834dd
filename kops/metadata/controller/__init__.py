"""The controller of a KRaft cluster, Kafka's QuorumController, as a pure core: requests and times in, records and responses out.

Nothing here has a clock, a socket, a file or a random number: times are arguments, random draws come from `settings.Draws`.
"""
