"""What the control plane and the trainer agree on: pydantic and the standard library, nothing else."""
