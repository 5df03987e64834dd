"""The coordinators of a broker: logs and metadata for their pure shards, and the service that takes requests to the right shard.

In: requests of groups, elections, new metadata. Out: appends to the coordinators' topics, promises of responses.
"""
