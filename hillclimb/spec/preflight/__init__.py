"""Spec sections: runs that train nothing (probe, validate, preview)."""
