"""The service: accepts run specs, stores runs, tells everyone what happens."""
