"""HTTP: routes, payloads, problems, pages and live streams over the domains."""
