"""Routes of access: keys, members, projects, quotas, the audit log, and the sign-in of people."""
