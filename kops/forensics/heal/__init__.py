"""`kops log heal`: fills damage and holes of a log from the intact batches of other replicas.

Comes in: directories to heal, and directories of replicas. Goes out: a plan of `kops.forensics.repair`, applied with its journal.
"""
