"""Shared by several of the folders beside this one."""
