"""Counts to figures: histograms, the progress line, the final table and the JSON."""
