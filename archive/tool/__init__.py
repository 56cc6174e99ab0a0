"""The commands on an archive directory."""
