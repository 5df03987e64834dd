"""`kops log repair`: turns findings into a plan that repairs a directory in place.

In: the findings of `verify`. Out: a plan of steps, one module for each kind of file. Only the journal writes.
"""
