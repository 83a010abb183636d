"""One leak surface a module: what its attacks may know, and how their guesses are judged."""
