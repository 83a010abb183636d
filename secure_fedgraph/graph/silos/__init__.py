"""Owners who come with data of their own: what each declares, how they agree, and how files are read."""
