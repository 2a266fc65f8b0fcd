"""The portable engine: continuous batching in plain torch."""
