"""Cold storage: segments of a log that left a member's disk for an object store, and how they come back.

`record` is what the member's directory says of them, `cache` keeps some on the disk, `file_system` shows a directory as
if they had never left it. The objects are those of `archive.stored`.
"""
