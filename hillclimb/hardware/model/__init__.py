"""Model shapes: parameters, context length, possible tensor-parallel sizes."""
