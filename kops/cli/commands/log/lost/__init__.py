"""The commands `kops log carve`, `explain`, `undelete` and `why-deleted`, one module each: lost data, the cause, and its recovery."""
