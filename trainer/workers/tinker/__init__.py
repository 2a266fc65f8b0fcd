"""Sampling and learning on a server of the Tinker protocol: the one folder that imports its SDK."""
