"""The commands `kops log index ...`, one module each."""
