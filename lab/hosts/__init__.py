"""Several hosts on one machine: network namespaces, a switch that loses and delays frames, clocks apart."""
