"""What the commands share: flags, asking members, tables, members as processes."""
