"""The tasks of a submitted spec: its dataset version, the rules for it, its environments."""
