"""The election: 18 states, one table of legal transitions."""
