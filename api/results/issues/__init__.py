"""The ledger of issues: stored words, and figures computed from outcomes."""
