"""Rows that travel between ranks."""
