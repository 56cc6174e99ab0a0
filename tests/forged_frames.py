"""Changes of a log that no check sees: another payload with the checksum that goes with it."""

from __future__ import annotations

from struct import pack_into

from trimaran.service_api.wire.frame import frame_crc, unpack_header


def forge(frames: bytes, text: bytes) -> tuple[int, bytes]:
    """Change a bit of the first frame that has a text; returns where that frame begins, and the frame."""
    offset = 0
    while offset < len(frames):
        header = unpack_header(frames, offset)
        frame = bytearray(frames[offset : offset + header.aligned_length])
        if (at := frame.find(text)) > 0:
            frame[at] ^= 1
            pack_into("<i", frame, 12, frame_crc(frame, 0, header.frame_length))
            return offset, bytes(frame)
        offset += header.aligned_length
    raise AssertionError(f"no frame has {text!r}")
