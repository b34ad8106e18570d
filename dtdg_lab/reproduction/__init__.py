"""Claims of papers, measured by rules that were written before the run: ``dtdg-lab reproduce``."""
