"""The command line: parses and prints, decides nothing.

In: arguments. Out: text and an exit code. A command is in `commands`; the work is done in a package below.
"""
