"""Learner state on disk and weights sent to engines."""
