"""The APIs that a broker serves.

In: a request and the parts of the broker. Out: its response, at once or later. `table` has the handler of each API. `dispatch` calls the
handler and converts an error into a response.
"""
