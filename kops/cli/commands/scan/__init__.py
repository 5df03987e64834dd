"""The commands `kops scan ...`, one module each."""
