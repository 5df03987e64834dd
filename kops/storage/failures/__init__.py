"""The exceptions of a broker's loader, by Kafka's names.

Other rooms raise and catch them.
"""
