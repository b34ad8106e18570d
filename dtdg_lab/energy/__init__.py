"""Energy: NVML and RAPL where they can be read, a named model where they cannot; by windows and phases. No torch."""
