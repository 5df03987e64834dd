"""The commands `kops log meta ...`, one module each."""
