"""Limits on a running run: its budget and the lifetime of its cluster."""
