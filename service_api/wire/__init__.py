"""What crosses a link or lands in a file.

`frame` and `stream` are Aeron data frames, `link_frames` the frames of links that are messages themselves; `sbe`,
`fields`, `message`, `codec` and `versioned` are SBE messages; `session` is the session protocol shared by clients and
members. Import from these: who reads frames needs no messages.
"""
