"""The commands `kops log ...`, one module each."""
