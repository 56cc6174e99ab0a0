"""Reading recordings a block at a time with numpy and pyarrow: needs `trimaran[arrow]`.

`archive.files.vector` finds and checks the frames; here `messages` joins fragments and `columns` makes Arrow record
batches. Nothing here is imported before it is used.
"""
