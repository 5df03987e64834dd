"""The operations of the admin client, by subject. Each is a function that returns the steps of one operation.

In: a client, what a program wants. Out: steps, which end with typed values and KafkaErrors. Nothing here waits or opens a connection.
"""
