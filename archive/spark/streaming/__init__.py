"""The streaming data source: follow the log of a cluster."""
