"""DynaHB: hybrid batches of some nodes in some snapshots, and policies that choose their size."""
