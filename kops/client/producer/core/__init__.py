"""The producer as a pure core: it queues records, decides what to send and when, and handles answers.

In: records, the time, answers of brokers. Out: requests, and batches with a known outcome.
"""
