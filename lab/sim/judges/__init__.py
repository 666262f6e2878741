"""What must hold, and what is true."""
