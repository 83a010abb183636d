"""The Flower app for federations that run official SuperNodes: its two ends, and its folder."""
