"""Stages of a protection: clip, fixed point, Gaussian noise."""
