"""A silo's letters over a Unix socket, for federations that run official SuperNodes."""
