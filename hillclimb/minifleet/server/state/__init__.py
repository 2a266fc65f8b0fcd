"""State of the server: instances, databases, tasks, verifiers."""
