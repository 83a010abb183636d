"""Sums of ciphertexts; the native parts run in a process of their own."""
