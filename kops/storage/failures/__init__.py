"""What goes wrong with logs and log directories, by Kafka's names.

In: an error. Out: an exception that the loader catches or a start ends with, or a log directory that is offline from now on.
"""
