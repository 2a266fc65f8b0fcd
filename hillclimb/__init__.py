"""The face a user imports: typed client and command line."""
