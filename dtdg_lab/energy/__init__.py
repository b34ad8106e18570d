"""Energy of a run by windows and phases: measured by NVML and RAPL where possible, else modelled. Without torch."""
