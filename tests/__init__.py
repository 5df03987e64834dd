"""Tests of kops; `tests/support` is what they share."""
