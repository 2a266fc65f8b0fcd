"""The state directory of an embedded stack."""
