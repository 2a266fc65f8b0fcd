"""Routes about datasets and their exclusions."""
