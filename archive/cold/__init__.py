"""Cold storage: segments of a log that left a member's disk for an object store, and how they come back.

`manifest` is what the store and the member's directory say of them, `store` writes and reads the objects, `cache` keeps
some on the disk, `file_system` shows a directory as if they had never left it.
"""
