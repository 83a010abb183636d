"""Owners' tables: how files are read, the schema that owners agree on, and numbers made of columns by it."""
