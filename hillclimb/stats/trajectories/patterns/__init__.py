"""Failure patterns: deterministic detectors over conversations, one definition each."""
