"""The work of ``predict``: next week's table, scored by a released model as this week's was."""
