"""The group coordinator of a broker: logs and metadata for its pure shards, and the service that passes requests to the right shard.

In: requests of groups, elections, new metadata. Out: appends to the coordinators' topics, promises of responses.
"""
