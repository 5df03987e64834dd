"""Regular expressions of consumer groups, by RE2J's rules and in linear time.

In: expressions and names of topics. Out: the topics that match, or RE2J's error.
"""
