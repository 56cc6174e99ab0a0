"""Many sessions of one process over one connection to each member.

shared_connection   SharedConnection, what applications use: the sessions, and what one of them shows for all
shared_link         one connection to a member: dials, writes in turns, tells whose each received frame is
session_channel     a session's part of a link; frame_owner tells whose a frame is
"""

from .shared_connection import SharedConnection as SharedConnection
