"""The member's side of document requests on its consensus endpoint."""
