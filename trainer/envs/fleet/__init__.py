"""See docs/environments.md: the `fleet` provider."""
