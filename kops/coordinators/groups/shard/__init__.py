"""The shard of the group coordinator: takes each request to the room that knows the group's kind.

In: requests, replayed records, metadata, the end of transactions. Out: records, responses and promises of responses.
"""
