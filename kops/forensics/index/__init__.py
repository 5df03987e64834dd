"""`kops log index`: checks, rebuilds and compares offset, time and transaction indexes.

In: partitions of the inventory. Out: findings, differences, or a plan that rebuilds index files.
"""
