"""Model files: where they come from and the settings read from them."""
