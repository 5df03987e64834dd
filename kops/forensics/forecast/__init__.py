"""`kops log forecast`: what the start of an Apache Kafka 4.3 broker would do to log directories.

In: log directories. Out: what would be loaded, cut, deleted or refused, and which offsets that loses. The loader runs on an overlay in
memory.
"""
