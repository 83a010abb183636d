"""An experiment as files know it: its configuration, its results, its comparison with others."""
