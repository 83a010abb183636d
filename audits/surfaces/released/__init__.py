"""What outsiders with published models are granted, and the judges of what they guess."""
