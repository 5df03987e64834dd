"""Nodes under load that are killed, paused and cut off, and what is checked afterwards."""
