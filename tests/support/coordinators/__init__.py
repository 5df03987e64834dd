"""Shared code of the tests of coordinators: a clock and a log that the test controls."""
