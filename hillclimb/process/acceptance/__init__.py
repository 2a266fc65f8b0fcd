"""Acceptance: small real checks of a path on an installation, and the evidence that they leave."""
