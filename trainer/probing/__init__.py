"""Probes: rollouts of training tasks on a fixed policy, before anything is trained."""
