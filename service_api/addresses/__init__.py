"""Names and addresses: which members a pattern of names stands for, and sockets at what a name resolves to."""
