"""ADGNN-T and PyGT-Dist: full batches over node partitions, with a halo exchange or with replicated neighbours."""

from dtdg_lab.systems.base import SystemFamily

FAMILY = SystemFamily("vertex_parts")
