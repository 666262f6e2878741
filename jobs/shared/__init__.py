"""What several of the rooms beside this one use."""
