"""`compare` and `bench`: points side by side, and attacks on each."""
