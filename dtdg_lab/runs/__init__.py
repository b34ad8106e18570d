"""Run directories: record tables on disk, their merging and reading, summaries, comparison and the HTML report."""
