"""Remote procedure calls for feature rows."""
