"""Kernels of a GPU for attention, norms, rotations, gated MLPs and the head's scores."""
