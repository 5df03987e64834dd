"""The parts of a broker or controller without sockets, disks and clocks. A test moves them."""
