"""Epsilon, measured: canaries, worst cases, removals."""
