"""What whoever holds a trainer does with it: runners and the nodes of clusters, the same way."""
