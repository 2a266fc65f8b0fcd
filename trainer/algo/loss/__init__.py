"""The policy loss and its parts, one idea per file."""
