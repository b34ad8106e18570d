"""Graphs as models see them on one rank."""
