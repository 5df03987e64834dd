"""Finds the command for the arguments, parses its options, runs it and chooses the exit code.

In: arguments. Out: an exit code. Help and completion come from the same tree of commands.
"""
