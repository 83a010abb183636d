"""Rewards of FairGraphFL's baselines: agents are given a part of the aggregate by other measures of worth."""
