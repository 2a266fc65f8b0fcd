"""The application behind one address, in one process or in several that share its socket."""
