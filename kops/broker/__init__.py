"""A node as one loop: sockets, timers and files around the pure cores of kops.metadata, kops.replication and kops.storage."""
