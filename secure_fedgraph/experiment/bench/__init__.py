"""The board: a fixed suite that everybody runs, and what a stranger's file of it is worth."""
