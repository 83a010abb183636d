"""Partitions: one data set in, the parts of all owners and the test set of the referee out."""
