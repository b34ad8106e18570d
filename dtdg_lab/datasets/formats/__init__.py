"""Parsers of data files, one for each format. They return a table of ``datasets.tables``."""
