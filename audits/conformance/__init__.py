"""Does a run do what its declaration says? One check a module."""
