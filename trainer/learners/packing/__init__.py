"""Packing of sequences into micro-batches."""
