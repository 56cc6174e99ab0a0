"""Blocks of frames, checked a column at a time with numpy: needs `trimaran[arrow]`.

`scan` finds and checks frames, `checksums` checks a block's CRC-32 in one call, `log_rules` has the rules of a log.
Nothing here is imported before it is used.
"""
