"""Trackers beside W&B, and what all of them share: plan and stored files."""
