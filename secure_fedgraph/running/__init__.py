"""One run: its options, what is bound before it, its session, its loop, and what it leaves."""
