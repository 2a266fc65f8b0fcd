"""Training: the GRPO loop, evaluation and checkpoints."""
