"""Spec sections: where the trainer runs (runner, cluster, Tinker server)."""
