"""See the package map in ARCHITECTURE.md."""
