"""The sections of a report page, one module each."""
