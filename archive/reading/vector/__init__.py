"""Reading recordings a block at a time with numpy and pyarrow: needs `trimaran[arrow]`.

`scan` finds and checks frames, `checksums` checks a block's CRC-32 in one call, `messages` joins fragments,
`columns` makes Arrow record batches. Nothing here is imported before somebody asks for it.
"""
