"""The share coordinator: the delivery state of share groups, partition by partition, in __share_group_state.

In: Initialize, Read, Write, Delete and ReadSummary of share state, replayed records. Out: responses, snapshot and update records.
"""
