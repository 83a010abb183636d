"""The demonstration: real attacks on real data in the open and under a budget, and what the budget costs."""
