"""The commands `kops group ...`, one module each."""
