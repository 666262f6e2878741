"""Several hosts on one machine: network namespaces, a switch between them that loses and delays frames, clocks apart."""
