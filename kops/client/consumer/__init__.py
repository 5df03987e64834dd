"""The consumer's settings, deserializers, records and errors. Its rooms are the pure core and the faces, which drive it.

In: a program's settings, bytes of keys and values. Out: options, keys and values, errors with Kafka's names.
"""
