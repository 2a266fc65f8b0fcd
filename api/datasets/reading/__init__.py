"""Reads dataset versions: rows, facts for clients, lint and differences."""
