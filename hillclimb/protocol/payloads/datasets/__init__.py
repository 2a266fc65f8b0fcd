"""Payloads of datasets."""
