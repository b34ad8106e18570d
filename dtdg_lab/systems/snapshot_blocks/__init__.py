"""ESDG: snapshots over ranks in blocks of time, redistributed to nodes for the recurrent layer."""
