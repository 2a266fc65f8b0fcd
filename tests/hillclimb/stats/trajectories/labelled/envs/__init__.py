"""Platforms around the miniature apps: how they spell arguments, answers and errors."""
