"""Writing a member's directory that an Aeron member goes on with, to the same state.

`foreign_entries` finds what Aeron would misread in a log, `rewriting` writes it so that Aeron reads it as it was meant,
`request_decisions` says which requests ran, and `plan` where the log can begin. The command is
`cli.interchange.export_aeron`; `directories.copying` writes the directory.
"""
