"""Epsilon of a run's events: loss distributions, Renyi divergences, a filter for budgets."""
