"""From a command line to a command: the tree, the options, the help, the exit codes.

In: arguments. Out: an exit code.
"""
