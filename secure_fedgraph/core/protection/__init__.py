"""Protections: clips, grids, noise and sums over units, bound to a channel with one carrier."""
