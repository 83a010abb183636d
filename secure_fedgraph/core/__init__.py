"""What keeps a promise: the door, what can be said, the protections, what they cost, and the carriers."""
