"""The ledger, the budget that a run may spend, and the noise that fits it."""
