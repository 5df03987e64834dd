"""Files that Kafka renamed for deletion: `kops log undelete` restores them, `kops log why-deleted` shows why they were renamed.

In: log directories and partition directories. Out: a plan of renames, with the reasons for each file left out; causes with their evidence.
"""
