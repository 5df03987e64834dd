"""Operations that wait for replicas, data or a time-out (Kafka's purgatories).

In: an operation and what it waits for. Out: its completion, once.
"""
