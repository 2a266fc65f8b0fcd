"""Collects on the user's machine what the service imports: dumps, capsules, W&B histories."""
