"""The commands `kops cluster ...`, one module each."""
