"""The producer as a pure core: where records wait, what is sent when, and what an answer means.

In: records, the time, answers of brokers. Out: requests, and batches whose outcome is known.
"""
