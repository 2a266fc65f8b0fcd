"""Scripted policies: turns in a real miniature environment, and what the script knows of them."""
