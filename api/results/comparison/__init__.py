"""Comparison of two runs, or of two steps, task by task."""
