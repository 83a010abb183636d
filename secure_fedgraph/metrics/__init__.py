"""Metrics: scores of test items counted into cells, and figures with intervals from the counts alone."""
