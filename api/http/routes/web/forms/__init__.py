"""Routes of pages that are forms: submitting a run, and administering a project."""
