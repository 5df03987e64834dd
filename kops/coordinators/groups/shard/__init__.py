"""The shard of the group coordinator: passes each request to the room for the group's kind.

In: requests, replayed records, metadata, the end of transactions. Out: records, responses and promises of responses.
"""
