"""Probe: rolls out training tasks on a fixed policy before training."""
