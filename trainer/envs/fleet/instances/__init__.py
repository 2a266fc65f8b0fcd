"""Fleet instances: requests, leases, concurrency limit."""
