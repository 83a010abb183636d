"""What attackers of a split by columns are granted, and the judges of what they guess."""
