"""What stands at the top of a page: one sentence, one picture, three figures."""
