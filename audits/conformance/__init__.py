"""Does a run do what its declaration says? Checks of its record, and of its code on a small federation."""
