"""The share coordinator: what share groups have delivered, in __share_group_state, partition by partition.

In: Initialize, Read, Write, Delete and ReadSummary of share state, replayed records. Out: responses, snapshot and update records.
"""
