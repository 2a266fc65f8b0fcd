"""What runs on every machine of a rented cluster: it holds one attempt's trainer."""
