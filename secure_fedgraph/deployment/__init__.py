"""Owners on machines of their own: the federation's file, each silo's folder, and the way between them."""
