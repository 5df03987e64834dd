"""Members of groups whose coordinator assigns the partitions: the consumer protocol (KIP-848) and the share protocol (KIP-932).

In: topics, answers of the coordinator, results of the listener's calls, the time.
Out: heartbeats, and what the consumer has to do: stop reading, commit, call the listener, take an assignment. No socket, no clock.
"""
