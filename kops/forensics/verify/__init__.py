"""`kops log verify`: whether everything on disk is as Apache Kafka would have written it. Read-only.

In: paths and a level. Out: a report with findings. `run` plans the work, `jobs` spreads it over processes, `facts` reads, `checks` judges.
"""
