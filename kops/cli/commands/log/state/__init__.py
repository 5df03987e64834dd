"""The commands `kops log offsets`, `txnstate` and `txns`, one module each."""
