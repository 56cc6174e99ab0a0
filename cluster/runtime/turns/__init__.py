"""The member's turns: events go in, effects are performed in order."""
