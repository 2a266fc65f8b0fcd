"""Chat formatting: templates, tokenizers, prompts, tool-call parsing."""
