"""Pages that are forms: submitting a run, and administering a project."""
