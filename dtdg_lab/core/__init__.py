"""Errors, options, the catalogue, plans, record tables, random streams, units. Imports nothing of the other rooms."""
