"""Services that simulated clusters run, and their observer."""
