"""Views: graphs as models see them on one rank."""
