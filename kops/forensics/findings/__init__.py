"""Findings: the form in which everything reports what is wrong, and the registry of their codes.

In: what a check saw. Out: a finding with a code, a severity and a remedy.
"""
