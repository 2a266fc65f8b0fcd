"""Routes of runs that train nothing, and of first prompts."""
