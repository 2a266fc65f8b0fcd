"""Servers of the embedded stack and their readiness probes."""
