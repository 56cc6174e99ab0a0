"""The batch data source: plan a read, read a partition."""
