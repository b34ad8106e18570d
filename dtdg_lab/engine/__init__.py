"""Training of a snapshot sequence over parts and ranks. A plan of P parts runs on any R ranks where R divides P."""
