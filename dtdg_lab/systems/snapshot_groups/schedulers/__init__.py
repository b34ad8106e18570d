"""Schedulers, which assign snapshot groups to parts and iterations; all have the same ``schedule`` signature."""
