"""Log directories offline: list, dump, verify, forecast, repair, recover.

In: paths. Out: documents, findings, a plan, or new files. Only a journal changes existing files.
"""
