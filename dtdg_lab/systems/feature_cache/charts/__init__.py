"""Charts, tiles and captions of systems that fetch features."""
