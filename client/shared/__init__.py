"""Many sessions of one process over one connection to each member.

session_pool        SessionPool: lends sessions to callers that come and go, and makes their requests over one
shared_connection   SharedConnection, what applications use: the sessions, and what one of them shows for all
shared_link         one connection to a member: dials, writes in turns, tells whose each received frame is
session_channel     a session's part of a link; frame_owner tells whose a frame is
"""

from .session_pool import SessionPool as SessionPool
from .shared_connection import SharedConnection as SharedConnection
