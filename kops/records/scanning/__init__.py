"""The scanner.

In: a source of bytes. Out: `Batch | Damage`, one by one or as columns of headers. It resynchronises behind damage on the next batch
whose CRC holds.
"""
