"""Validations: every task checked by its recorded calls, its verifier, and a teacher."""
