"""A warm start: imitate demonstrations, or the graded rollouts of an earlier run."""
