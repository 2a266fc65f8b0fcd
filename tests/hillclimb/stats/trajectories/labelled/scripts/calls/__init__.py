"""Patterns of calls and their answers."""
