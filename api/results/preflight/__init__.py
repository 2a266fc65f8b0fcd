"""Results of runs that train nothing, and the first prompts of any run."""
