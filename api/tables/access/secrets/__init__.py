"""Secrets that the service keeps for projects, encrypted with the operator's master keys."""
