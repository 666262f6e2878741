"""What goes wrong, and what may."""
