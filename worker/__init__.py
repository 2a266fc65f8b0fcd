"""The hands: turns a stored run into a trainer at work, and back into nothing."""
