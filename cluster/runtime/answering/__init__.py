"""The member's side of what is asked on its consensus endpoint."""
