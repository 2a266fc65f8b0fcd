"""Limits of a rollout: time, turns, tokens, concurrency."""
