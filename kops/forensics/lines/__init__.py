"""Logs as lines of JSON and back: `kops log export`, `import` and `append`.

In: segments or lines. Out: lines or segments, written by the log engine as a broker with the same settings would write them.
"""
