"""Campaigns: many evaluations admitted, retried and tabulated as one object."""
