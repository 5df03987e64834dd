"""The report of a case: one HTML page for people, made from the case's documents alone.

In: a case. Out: a page with a summary, a map of each damaged segment, drawings of sizes and times, the findings explained, and the hashes.
It needs no script and loads nothing. What is in the case is not trusted: all of it is escaped, and documents that are malformed are
reported.
"""
