"""Commands that start local servers for development."""
