"""One partition's files, the log loader, the start of a broker's log directories. Clock and files are passed in."""
