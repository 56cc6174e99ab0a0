"""What a directory of files is read and written through: the real disk, one in memory, object stores."""
