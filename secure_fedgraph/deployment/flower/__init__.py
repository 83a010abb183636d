"""Flower as the way: the SuperLink process, the server's end of it, and a silo's end."""
