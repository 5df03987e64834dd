"""The commands `kops log carve`, `explain`, `undelete` and `why-deleted`, one module each: what was lost, why, and how to get it back."""
