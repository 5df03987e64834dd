"""The admin client as a library: everything that Java's Admin of Kafka 4.3 can ask a cluster.

In: what a program wants (topics, groups, settings), under Kafka's names in snake_case. Out: frozen values, and an error for each key that
failed. `core` runs operations, `operations` has them all, `faces` offers them to threads and to asyncio.
"""
