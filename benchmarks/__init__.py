"""Speed as ratios, measured in one process against the best other way to do the same."""
