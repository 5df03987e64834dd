"""The scanner: finds the batches in a log, even after damage.

In: a source of bytes. Out: `Batch | Damage`, one by one or as columns of headers. After damage it continues at the next batch with a
correct CRC.
"""
