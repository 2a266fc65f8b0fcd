"""What control plane and trainer agree on: pydantic and the standard library, nothing else."""
