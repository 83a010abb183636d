"""Disputes over masked sums: what the server keeps, what owners sign and open, and what an auditor finds."""
