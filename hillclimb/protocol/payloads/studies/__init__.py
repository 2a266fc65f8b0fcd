"""Payloads of objects that span several runs."""
