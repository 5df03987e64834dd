"""Values of records as JSON-like data: from JSON, Avro or Protobuf, and the paths that pick parts of it.

In: the bytes of a value, and a schema. Out: None, numbers, text, lists and dicts. Nothing is fetched: a schema is a file of the user's. The
decoders need no other package, can be pickled, and raise DecodeError for bytes that do not fit the schema.
"""
