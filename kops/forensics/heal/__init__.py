"""`kops log heal`: fills damage and holes of a log from the intact batches of other replicas.

In: directories to heal, and directories of replicas. Out: a plan of `kops.forensics.repair`, applied with its journal.
"""
