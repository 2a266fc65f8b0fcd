"""Validation: checks every task by recorded calls, verifier and teacher."""
