"""What crosses a link or lands in a file.

`frame` and `stream` are Aeron data frames; `fields`, `message`, `codec` and `versioned` are SBE messages;
`session` is the session protocol shared by clients and members.
"""

from .frame import FrameHeader as FrameHeader
from .frame import SetupFrame as SetupFrame
from .frame import StatusFrame as StatusFrame
from .frame import align as align
from .frame import encode_frame as encode_frame
from .frame import encode_message as encode_message
from .frame import encode_padding as encode_padding
from .frame import fragment as fragment
from .frame import frame_crc as frame_crc
from .frame import framed_length as framed_length
from .frame import position_of as position_of
from .frame import read_header as read_header
from .frame import term_of as term_of
from .message import MESSAGES as MESSAGES
from .message import ClusterMessage as ClusterMessage
from .message import GroupElement as GroupElement
from .message import Message as Message
from .message import Registry as Registry
from .message import decode_message as decode_message
from .message import peek_header as peek_header
from .message import registry_of as registry_of
from .session import EGRESS_MESSAGES as EGRESS_MESSAGES
from .session import INGRESS_MESSAGES as INGRESS_MESSAGES
from .session import AdminRequest as AdminRequest
from .session import AdminRequestType as AdminRequestType
from .session import AdminResponse as AdminResponse
from .session import AdminResponseCode as AdminResponseCode
from .session import Challenge as Challenge
from .session import ChallengeResponse as ChallengeResponse
from .session import EventCode as EventCode
from .session import NewLeaderEvent as NewLeaderEvent
from .session import SessionCloseRequest as SessionCloseRequest
from .session import SessionConnectRequest as SessionConnectRequest
from .session import SessionEvent as SessionEvent
from .session import SessionKeepAlive as SessionKeepAlive
from .session import SessionMessageHeader as SessionMessageHeader
from .stream import Frame as Frame
from .stream import FrameParser as FrameParser
from .stream import MessageAssembler as MessageAssembler
