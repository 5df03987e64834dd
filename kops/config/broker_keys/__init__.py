"""All settings of a node as tables: name, type, default, limits, and what each does in kops.

Nothing is decided here.
"""
