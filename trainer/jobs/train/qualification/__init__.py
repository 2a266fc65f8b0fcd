"""Qualification of checkpoints: a fresh process loads one and takes an update with it."""
