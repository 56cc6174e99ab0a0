"""The commands that have a running cluster do something."""
