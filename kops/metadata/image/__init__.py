"""The cluster's metadata as immutable images (Kafka's org.apache.kafka.image).

In: an image and records. Out: the next image. `writer` turns an image into records, for a snapshot.
"""
