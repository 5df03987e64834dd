"""The command line. It parses and prints, and makes no decisions of its own.

In: arguments. Out: text and an exit code. Commands are in `commands`; lower packages do the work.
"""
