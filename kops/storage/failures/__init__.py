"""What goes wrong with logs and log directories, by Kafka's names.

In: an error. Out: an exception that the loader catches or that ends a start, or a log directory that is offline from now on.
"""
