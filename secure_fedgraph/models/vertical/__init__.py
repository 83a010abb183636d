"""A graph network whose layers are split over owners of features and links."""
