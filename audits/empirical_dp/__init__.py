"""Epsilon, measured: worst cases."""
