"""Parts that several commands use: flags, asking members, tables, members as processes."""
