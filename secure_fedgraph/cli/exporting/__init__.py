"""The work of ``export``: a released model as a file of other programs, with a model card."""
