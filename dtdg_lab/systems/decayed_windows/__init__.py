"""FlareDTDG and DynaGraph: windows of full and decayed or sampled snapshots over node partitions."""
