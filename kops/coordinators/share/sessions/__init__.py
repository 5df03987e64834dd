"""Share sessions: which partitions a member of a share group fetches, kept between its requests, and how a fetch is divided among them.

In: epochs, partitions, closed connections. Out: contexts of requests, what of their results is told.
"""
