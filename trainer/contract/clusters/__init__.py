"""Clusters: what a spec may ask for, which clouds have it, and whether a run fits on it."""
