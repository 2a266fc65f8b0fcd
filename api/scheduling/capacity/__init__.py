"""Capacity of a project: the slots of its runners, and its quotas of runs."""
