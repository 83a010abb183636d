"""GCFL: agents are split into clusters that share updates, by what their updates or their norms look like."""
