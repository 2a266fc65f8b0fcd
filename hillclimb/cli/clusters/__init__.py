"""Commands about rented clusters, budgets and clouds."""
