"""Commands that check environments, prompts and tasks before training."""
