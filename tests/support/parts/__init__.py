"""A broker's or controller's parts without sockets, disks and clocks: a test moves them."""
