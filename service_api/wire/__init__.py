"""What crosses a link or lands in a file: frames (`frame`, `stream`), SBE messages (`fields`, `message`, `codec`)
and the session protocol shared by clients and members (`session`).
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
from .stream import Frame as Frame
from .stream import FrameParser as FrameParser
from .stream import MessageAssembler as MessageAssembler
