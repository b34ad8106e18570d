"""What benchmarks/models.py compares: this lab, PyG-Temporal, and plain ports of the papers' functions."""
