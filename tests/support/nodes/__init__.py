"""Nodes of kops, whole or only a server, and clients that talk to them over loopback."""
