"""Attacks by policies by seeds: the cells of an audit and their outcomes."""
