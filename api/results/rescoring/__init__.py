"""Stored rollouts graded again by another version of their verifier."""
