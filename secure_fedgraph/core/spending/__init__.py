"""What was spent: the ledger, one line of it, and the budget."""
