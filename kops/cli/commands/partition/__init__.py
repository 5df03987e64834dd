"""The commands `kops partition ...`, one module each."""
