"""Clusters on this machine: brokers as processes under a supervisor (`kops cluster`), or all in one process (`kops.Cluster`)."""
