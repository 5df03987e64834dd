"""What all operations share: steps of calls, the look-up of brokers, outcomes by key, and the class that runs operations.

In: operations as generators, answers and the time of the client's clock. Out: calls to be sent, and the operations' outcomes.
"""
