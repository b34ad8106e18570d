"""What a step of a window of snapshots is made of: which snapshots, how many chunks of each, which edges among them."""
