"""The documentation as one body: its list of pages, its links, and the site that is built of it."""
