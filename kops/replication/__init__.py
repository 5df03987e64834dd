"""Leaders and followers of partitions, as pure cores.

In: events and the time. Out: decisions and messages. Source: Kafka's kafka.cluster, and the fetchers and purgatories of kafka.server.
"""
