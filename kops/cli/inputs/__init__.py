"""Inputs that several commands share: how to reach a cluster, which cluster is meant, files named by options, lines of text."""
