"""Single-device kernels: sparse products by torch or DGL (imported only here), and recurrences."""
