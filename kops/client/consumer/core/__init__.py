"""The consumer as a pure core: it fetches partitions, keeps positions, takes part in a group, and handles answers.

In: subscriptions, seeks and commits, the time, answers of brokers. Out: requests, records, and calls of rebalance listeners.
"""
