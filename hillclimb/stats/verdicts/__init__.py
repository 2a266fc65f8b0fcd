"""Verdicts on training: the same tasks before and after, judged by a versioned rule."""
