"""What a party and a run keep between rounds, on disk."""
