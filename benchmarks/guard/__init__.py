"""Instruction counts of the hot paths under callgrind, and the stored counts that they may not exceed."""
