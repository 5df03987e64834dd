"""Share sessions: the partitions that a member of a share group fetches, kept between requests, and the division of a fetch among them.

In: epochs, partitions, closed connections. Out: contexts of requests, and the results to include in responses.
"""
