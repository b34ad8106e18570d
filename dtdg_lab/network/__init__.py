"""Links made slow on purpose: which, when, by how much, and by what means. Needs no torch."""
