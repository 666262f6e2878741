"""The pages: a module and a template of the same name for each."""
