"""Operations that wait for replicas, data or time (Kafka's purgatories).

In: an operation and what it waits for. Out: its completion, once.
"""
