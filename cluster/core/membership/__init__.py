"""Who the members are: the configurations in the log, who is spoken to, and changes."""
