"""Attacks on weight updates."""
