"""Charts of one run: those that every run has, and those that families of systems share."""
