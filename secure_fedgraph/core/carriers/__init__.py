"""Carriers: how an upload travels, and what its reader can open."""
