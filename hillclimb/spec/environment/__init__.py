"""Spec sections: environments and their providers."""
