"""The documents that cross processes: status, inspection, diagnosis, operations; and how they are asked for."""
