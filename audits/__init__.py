"""Audits: they may see everything, because they judge."""
