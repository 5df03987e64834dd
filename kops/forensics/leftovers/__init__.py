"""What Kafka left on its way to deletion: `kops log undelete` takes it back, `kops log why-deleted` says why it is there.

In: log directories and partition directories. Out: a plan of renames with the reasons of what is refused; causes with their evidence.
"""
