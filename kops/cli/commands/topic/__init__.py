"""The commands `kops topic ...`, one module each."""
