"""Nodes of kops, whole or a server alone, and clients that speak to them over loopback."""
