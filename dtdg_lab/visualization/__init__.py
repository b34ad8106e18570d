"""What runs and graphs look like: plain plotly figure dicts and sentences. Imports no plotly, no torch."""
