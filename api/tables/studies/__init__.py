"""Tables of studies: objects that span several runs."""
