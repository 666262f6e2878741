"""What several of the folders beside this one use."""
