"""Parsers of data files, one a format: ``parse(data, where, **options)`` gives a table of ``datasets.tables``."""
