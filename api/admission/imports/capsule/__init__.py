"""A capsule, of this or another installation, as an imported run."""
