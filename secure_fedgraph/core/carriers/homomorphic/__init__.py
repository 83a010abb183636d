"""Sums and valuations of ciphertexts (CKKS); the native parts run in a process of their own."""
