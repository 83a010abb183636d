"""Attacks on FedEgo's mashes."""
