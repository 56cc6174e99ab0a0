"""The formats of an archive as pure values: nothing here opens a file."""
