"""Verifiers: requests to run them, grades in the responses."""
