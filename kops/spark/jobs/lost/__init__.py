"""The job `kops scan carve`, which reads no logs but images.

In: paths or URLs of images. Out: the directories that `kops log carve` writes, and their rows as a DataFrame.
"""
