"""The run spec: its sections and the rules between them."""
