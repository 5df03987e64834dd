"""`kops log carve`: batches found in disk images and other files of unknown contents, sorted into logs.

In: bytes of an image. Out: partition directories that a broker opens, and where in the image each piece of them was.
"""
