"""The pages: browser sessions, page contents, templates and static files."""
