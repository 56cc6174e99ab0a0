"""Whole directories of members, read and written: ours and Aeron's."""
