"""The figures of a report page."""
