"""The documents that cross processes: status, inspection, operations; and how they are asked for."""
