"""Samplers of noise, exact on a grid; their randomness comes from the operating system."""
