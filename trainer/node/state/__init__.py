"""State of a node on its disk: journal, logs, secrets, orphaned processes."""
