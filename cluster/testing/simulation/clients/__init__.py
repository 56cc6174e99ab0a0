"""The simulated clients, their history, and its checks."""
