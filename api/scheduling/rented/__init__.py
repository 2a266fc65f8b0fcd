"""The first node of a rented cluster: its bootstrap token and its reports."""
