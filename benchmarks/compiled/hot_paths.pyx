# cython: language_level=3, boundscheck=False, wraparound=False, binding=True
"""The two functions that a leader spends most time in, as C: a prototype to measure with, not part of a node.

They do what `BoundedLogAdapter._deliver_run` and `ContainerClientSession.offer` do with messages of the usual kind.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE, PyByteArray_Resize
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memcpy, memset

cdef Py_ssize_t session_offset = 0, time_offset = 0, payload_offset = 0
cdef object pack_headers = None


def set_layout(session_at, time_at, payload_at, pack):
    """Say where the fields of a frame lie, and how the headers of egress are packed."""
    global session_offset, time_offset, payload_offset, pack_headers
    session_offset, time_offset, payload_offset, pack_headers = session_at, time_at, payload_at, pack


def deliver_run(self, run, int64_t position):
    """Deliver a run of session messages that differ in session, time and payload only."""
    cdef object agent = self._agent, frames = run.view
    cdef object egress = agent.egress, on_session_message = agent.service.on_session_message
    cdef dict sessions = agent.sessions
    cdef Py_ssize_t length = run.length, count = run.count, index, at
    cdef int64_t session_id, last_id = 0, timestamp, last_timestamp = 0
    cdef int32_t frame_length
    cdef object session = None, time = None
    cdef const char *begin
    cdef Py_buffer buffer
    PyObject_GetBuffer(frames, &buffer, PyBUF_SIMPLE)
    begin = <const char *> buffer.buf
    memcpy(&frame_length, begin, 4)
    try:
        for index in range(count):
            at = index * length
            memcpy(&session_id, begin + at + session_offset, 8)
            memcpy(&timestamp, begin + at + time_offset, 8)
            position += length
            if session is None or session_id != last_id:
                session, last_id = sessions.get(session_id), session_id
            if time is None or timestamp != last_timestamp:
                time, last_timestamp = timestamp, timestamp
            egress.time = time
            agent.log_position = position
            payload = frames[at + payload_offset : at + frame_length]
            if session is not None:
                try:
                    on_session_message(session, time, payload)
                except BaseException as error:
                    agent.on_service_error(error)
            elif session_id < 0:
                self._on_service_message(session_id, time, payload)
    finally:
        PyBuffer_Release(&buffer)
    return position


def offer(self, payload):
    """Send a message to the client; counted and discarded where this member does not lead."""
    cdef Py_ssize_t length, padding, begin
    cdef char *target
    cdef bytes headers
    cdef Py_buffer buffer
    if self._closing:
        return False
    container, out = self._container, self._out
    PyObject_GetBuffer(payload, &buffer, PyBUF_SIMPLE)
    try:
        length = buffer.len
        if length > container.offer_limit:
            return self._offer_otherwise(payload)
        if out is None:
            if not container.is_open:
                container.refuse("session.offer")
            container.discarded_egress_count += 1
            return True
        begin = PyByteArray_GET_SIZE(out)
        if begin == 0:
            container.dirty_sessions.append(self)
        time = container.time
        if length != self._headers_length or time != self._headers_time:
            self._headers_length, self._headers_time = length, time
            self._headers = pack_headers(length + payload_offset, self._constant, time)
        headers = self._headers
        padding = -length & 31
        PyByteArray_Resize(out, begin + len(headers) + length + padding)
        target = PyByteArray_AS_STRING(out) + begin
        memcpy(target, <const char *> headers, len(headers))
        memcpy(target + len(headers), buffer.buf, length)
        memset(target + len(headers) + length, 0, padding)
        return True
    finally:
        PyBuffer_Release(&buffer)
