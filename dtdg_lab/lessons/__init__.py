"""Checks, grading and widgets of the lessons."""
