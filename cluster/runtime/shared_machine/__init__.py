"""What tunes members that share one machine."""
