"""The commands `kops txn ...`, one module each."""
