"""Java's numbers, hashes and .properties files, and Kafka's ConfigDef.

In: text. Out: typed values, or Kafka's message about what is wrong.
"""
