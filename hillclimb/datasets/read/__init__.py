"""Parses task files in every form that Fleet has exported."""
