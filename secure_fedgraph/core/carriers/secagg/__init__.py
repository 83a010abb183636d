"""Secure aggregation by masks that cancel out, with clients that may drop out."""
