"""Probes of an audited run's algorithm and policy, on a small federation that is watched.

Every check here calls the code that the run used, on data that nobody owns, and says which promise it breaks.
"""
