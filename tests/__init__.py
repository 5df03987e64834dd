"""Tests of kops. `tests/support` has their shared code."""
