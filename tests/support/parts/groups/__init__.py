"""Coordinators and share partitions without a node around them."""
