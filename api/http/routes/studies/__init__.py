"""Routes of studies: objects that span several runs."""
