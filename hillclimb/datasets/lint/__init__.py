"""Lint: finds properties of a version that make training on it useless."""
