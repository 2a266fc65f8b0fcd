"""Jobs of the trainer, one folder per kind of run."""
