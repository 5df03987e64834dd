"""Scans over objects behind URLs: the files for the driver and for tasks, and rows of a job as objects.

In: paths and URLs. Out: `kops.files.Files` that reach both, the connections of the driver in tasks, and complete objects.
"""
