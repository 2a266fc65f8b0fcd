"""Patterns of thoughts."""
