"""GLASU: one graph, split by columns and links among owners."""
