"""The producer's settings, serializers, partitioners and errors. Its rooms are the pure core and the faces, which drive it.

In: a program's settings, keys and values. Out: options, bytes, partitions, errors with Kafka's names.
"""
