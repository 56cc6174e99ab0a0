"""What a member makes of the others: how they are, whose clock is off, which terms and messages are honest."""
