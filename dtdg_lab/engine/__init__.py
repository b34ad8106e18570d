"""How a sequence is laid over parts and ranks, one layout a file; plans of P parts run on any R that divides P."""
