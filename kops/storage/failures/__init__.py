"""What goes wrong when a log is loaded, by Kafka's names.

In: an error. Out: an exception that the loader catches, or that ends a start.
"""
