"""Preview: renders the prompts of all tasks without a model."""
