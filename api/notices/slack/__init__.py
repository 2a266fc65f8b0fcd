"""The Slack app: requests from Slack, links of its users, and live messages of runs."""
