"""`kops log carve`: finds batches in disk images and other files of unknown contents, and sorts them into logs.

In: bytes of an image. Out: partition directories that a broker opens, and the place of each piece in the image.
"""
