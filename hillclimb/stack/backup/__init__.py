"""Backup and restore of the embedded stack: its database, blobs and run directories."""
