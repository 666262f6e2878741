"""The pages: for each a module, and a template of the same name."""
