"""The commands `kops quorum ...`, one module each."""
