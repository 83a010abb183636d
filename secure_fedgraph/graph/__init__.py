"""Graphs without any federation: data sets, checks, splits, partitions and neighbour sampling."""
