"""Commands that start and stop the embedded stack."""
