"""Patterns of endings."""
