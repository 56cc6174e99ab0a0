"""The file systems of an archive: the real disk, one in memory, object stores."""
