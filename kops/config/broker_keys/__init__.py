"""All settings of a node as tables.

Each row has the name, type, default and limits, and says what the setting does in kops. The tables make no decisions.
"""
