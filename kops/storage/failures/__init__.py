"""The errors of loading a log, with Kafka's names.

In: an error. Out: an exception that the loader catches, or that ends a start.
"""
