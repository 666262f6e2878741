"""What is played of a machine: its event loop, its sockets, its disks and the life of its processes."""
