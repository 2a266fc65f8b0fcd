"""Imported runs: results of past runs become runs that ended, with the rows that ingest derives."""
