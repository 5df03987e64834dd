"""What the parts of the consumer's core share: the subscription with its positions, the metadata, requests and outcomes.

In: assignments, seeks, responses of Metadata. Out: the state of each partition, its leader, requests to send.
"""
