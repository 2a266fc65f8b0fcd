"""Commands of access: keys, members, projects, quotas and the audit log."""
