"""Runs: their states and transitions, events, leases and queries."""
