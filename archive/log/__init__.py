"""A member's directory as a log."""
