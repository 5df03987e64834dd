"""Nodes under load that are killed, paused and cut off, and the checks afterwards."""
