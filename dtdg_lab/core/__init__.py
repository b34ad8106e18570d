"""Errors, options, the catalogue, plans, record tables, random streams, units. Imports no other package."""
