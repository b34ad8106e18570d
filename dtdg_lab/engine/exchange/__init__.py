"""Exchange of rows between ranks."""
