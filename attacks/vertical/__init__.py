"""Attacks on GLASU: rows, labels and links of shared nodes."""
