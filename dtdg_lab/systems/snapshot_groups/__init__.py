"""DyGNeX, PSG and BLAD: groups of snapshots, scheduled over ranks."""
