"""Tasks of a run and the order in which training draws them."""
