"""Operators' work on members' directories: backups, recovery, Aeron in and out."""
