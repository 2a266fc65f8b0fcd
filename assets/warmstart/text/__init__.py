"""Text for the tiny models: demonstrations, copy documents, vocabulary."""
