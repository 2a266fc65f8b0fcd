"""Stopping rules: evaluations whose verdict stands, runs that cannot improve, or get worse."""
