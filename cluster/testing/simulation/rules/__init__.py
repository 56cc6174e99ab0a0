"""The rules of every run: the referee, and each family of rules in a file."""
