"""Kinds of faults that need more than a few lines: `hidden_flip` is a bit that no start reads, `standby_chains` what
becomes of a member that a standby follows."""
