"""Commands about studies: objects that span several runs."""
