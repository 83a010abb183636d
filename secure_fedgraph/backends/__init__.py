"""Other ways to reach clients than a call: each in a process of its own."""
