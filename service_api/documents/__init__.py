"""Documents that cross processes, and the status of a member."""
