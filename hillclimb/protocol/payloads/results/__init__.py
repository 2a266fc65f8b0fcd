"""Payloads of the results of runs."""
