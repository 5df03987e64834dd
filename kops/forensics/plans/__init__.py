"""Changes to a directory as data, and the journal that carries them out.

In: steps over files. Out: the directory as it will be (a plan) or as it is afterwards: the journal applies, resumes and rolls back.
`chain` and `index_interval` find out what a damaged log holds and how its indexes were written.
"""
