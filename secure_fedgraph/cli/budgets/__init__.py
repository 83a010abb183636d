"""What a budget costs, and what it is spent on best: the work of budget and plan."""
