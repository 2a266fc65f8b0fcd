"""Injected faults of the server: the plan and its execution."""
