"""Scheduling: assigns runs to runners or clusters, records their progress, ends attempts."""
