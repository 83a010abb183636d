"""What can be typed: every command with its options. What a command does is imported when it is called."""
