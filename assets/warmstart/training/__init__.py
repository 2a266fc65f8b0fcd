"""Supervised training of the tiny models."""
