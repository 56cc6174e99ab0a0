"""What fuzzing has found, and reading with its eyes: one test for each, named for what went wrong."""

from __future__ import annotations

import base64
import struct
import time
import tracemalloc
from pathlib import Path

import pytest

from tests.fuzz.disks import DIRECTORY, disk_with
from tests.fuzz.loops import on_loop, run_on_loop
from tests.fuzz.samples import framed, make_sample
from tests.fuzz.target import TARGETS
from tests.fuzz.targets import certificates
from tests.fuzz.targets.archive_files import descriptor_of
from tests.fuzz.targets.settings import REQUIRED, environment_of, toml_of
from tests.unit.client.dialogue import Dialogue
from tests.unit.client.fake_member import egress_frames, session_event
from tests.unit.cluster.core.rosters import roster
from tests.unit.cluster.runtime.fake_gate import let_in, quiet_gate
from tests.unit.cluster.runtime.fake_transport import FakeTransport, receive
from tests.waiting import patient
from trimaran.archive.errors import ArchiveError
from trimaran.archive.files.catalog import read_catalog
from trimaran.archive.files.mark_file import MARK_FILE_NAME
from trimaran.archive.files.marks import ARCHIVE_MARKS, read_mark_file
from trimaran.archive.format import messages
from trimaran.archive.format.catalog import CATALOG_FILE_NAME, encode_entry, parse_catalog
from trimaran.archive.net.connection import ArchiveConnection, Credentials
from trimaran.archive.net.control import PROTOCOL_VERSION, RESPONSE_STREAM_ID, error_of
from trimaran.archive.reading.export import ExportRefusedError, read_manifest
from trimaran.client.protocol.admin import SNAPSHOT_WISH
from trimaran.cluster.auth.secrets_file import SecretsFile
from trimaran.cluster.core.log.log_buffer import LogBuffer
from trimaran.cluster.core.log.log_receiver import LogReceiver
from trimaran.cluster.core.log.recording_log import RecordedSnapshot
from trimaran.cluster.core.log.shipped_snapshot import ShippedTerm, check_offer
from trimaran.cluster.core.service_messages import read_trackers
from trimaran.cluster.messages.snapshot import ConsensusModuleSnapshot, PendingMessageTracker
from trimaran.cluster.runtime.links.log_links import LogImage
from trimaran.cluster.settings.config_layers import load_node_config
from trimaran.cluster.settings.member_endpoints import parse_members
from trimaran.service_api.cluster_id import demanded_cluster_id
from trimaran.service_api.endpoint import Endpoint
from trimaran.service_api.errors import ClusterError, ConfigurationError, RemoteProtocolError
from trimaran.service_api.net.transport import Purpose
from trimaran.service_api.tls.certificates import read_certificates
from trimaran.service_api.types import LOG_STREAM_ID, ClusterSessionId, CorrelationId
from trimaran.service_api.wire.frame import encode_padding
from trimaran.service_api.wire.frame_rules import FrameRules
from trimaran.service_api.wire.link_frames import SetupFrame
from trimaran.service_api.wire.log.recording_log import EntryType, RecordingLogEntry, read_slots
from trimaran.service_api.wire.session import AdminRequestType, AdminResponse, AdminResponseCode, EventCode
from trimaran.service_api.wire.session_token import channel_digest

MANY_DIGITS = "9" * 5000
"""More than Python makes a number of without a word: `int` raises a ValueError that nobody expects."""


# --- files of an archive


@pytest.mark.parametrize(
    ("header_length", "error_buffer_length"), [(0, (1 << 31) - 1), (256, -1), (-64, 64), ((1 << 31) - 1, 64)]
)
def test_mark_file_has_no_more_set_aside_for_its_error_log_than_it_has(
    header_length: int, error_buffer_length: int
) -> None:
    """A mark file could ask for a read of 2 GiB, which is set aside before it is read."""
    header = make_sample(messages.ArchiveMarkFileHeader).model_copy(
        update={"header_length": header_length, "error_buffer_length": error_buffer_length}
    )
    disk = disk_with({MARK_FILE_NAME: header.encode()})

    if min(header_length, error_buffer_length) < 0:
        with pytest.raises(ArchiveError, match="mark file"):
            read_mark_file(DIRECTORY / MARK_FILE_NAME, ARCHIVE_MARKS, disk)
    else:
        _, area = read_mark_file(DIRECTORY / MARK_FILE_NAME, ARCHIVE_MARKS, disk)
        assert len(area) < 4096


def test_catalog_entry_that_is_impossible_and_has_a_wrong_checksum_is_reported() -> None:
    """A damaged catalog entry ended every command on the directory with a ZeroDivisionError."""
    entry = bytearray(encode_entry(descriptor_of()))
    struct.pack_into("<i", entry, 8, 12345)
    struct.pack_into("<i", entry, 32 + 60, 0)
    header = struct.pack("<iiqi12x", 0x0003_0100, 32, 1, 64)
    disk = disk_with({CATALOG_FILE_NAME: header + entry + bytes(64)})

    (found,) = read_catalog(disk, DIRECTORY).entries

    assert found.problem is not None
    assert found.wrong_checksum
    assert found == parse_catalog(header + bytes(entry) + bytes(64)).entries[0]


def test_file_of_an_export_with_values_without_end_is_refused(tmp_path: Path) -> None:
    """The file of an export with deep values ended the command with a RecursionError."""
    path = tmp_path / "manifest.json"
    path.write_text("[" * 100_000)

    with pytest.raises(ExportRefusedError, match="export"):
        read_manifest(path)


# --- archive over TCP


def _answer_of(correlation_id: int) -> messages.ControlResponse:
    return messages.ControlResponse(
        control_session_id=1,
        correlation_id=CorrelationId(correlation_id),
        relevant_id=1,
        code=messages.ControlResponseCode.OK,
        version=PROTOCOL_VERSION,
    )


@pytest.mark.parametrize("is_row_asked", [False, True])
def test_archive_that_answers_with_another_kind_of_message_is_given_up(is_row_asked: bool) -> None:
    """An archive that answered with another kind of message ended a member that copied a log from it."""
    row = make_sample(messages.RecordingDescriptorRow).model_copy(update={"correlation_id": 2})
    connection, transport = ArchiveConnection(Endpoint("127.0.0.1", 1), timeout_s=30), FakeTransport()
    connection.connection_made(transport)

    async def ask() -> None:
        opening = connection._open_session(Credentials(), RESPONSE_STREAM_ID)
        opening.send(None)
        receive(connection, framed([_answer_of(1)], RESPONSE_STREAM_ID))
        with pytest.raises(StopIteration):
            opening.send(None)
        asking = (
            connection.ask_rows(messages.ListRecordingRequest, 1, is_range=False, recording_id=0)
            if is_row_asked
            else connection.ask(messages.ArchiveIdRequest)
        )
        asking.send(None)
        receive(connection, framed([_answer_of(2) if is_row_asked else row], RESPONSE_STREAM_ID))
        with pytest.raises(RemoteProtocolError, match="unexpected answer"):
            asking.send(None)
        connection.abort()

    run_on_loop(ask())
    assert transport.is_closed


def test_refusal_of_an_archive_with_numbers_without_end_is_a_refusal() -> None:
    """A number with 5,000 digits in an archive's refusal raised a ValueError in the client."""
    refusal = _answer_of(1).model_copy(
        update={
            "code": messages.ControlResponseCode.ERROR,
            "error_message": f"no (code=GENERIC recording_id={MANY_DIGITS})",
        }
    )

    error = error_of(refusal)

    assert error is not None
    assert error.recording_id is None


# --- links between members


def test_offer_of_a_snapshot_with_terms_without_end_is_refused_in_little_memory() -> None:
    """An offer of a snapshot of term 2^40 had the follower make a list of all terms up to it."""
    snapshots = [
        RecordedSnapshot(
            recording_id=1,
            leadership_term_id=1 << 40,
            term_base_log_position=0,
            log_position=960,
            timestamp=0,
            service_id=service_id,
        )
        for service_id in (-1, 0)
    ]

    with pytest.raises(RemoteProtocolError, match="expected all"):
        check_offer([ShippedTerm(0, 0, 0)], snapshots, service_count=1)


def test_padding_that_is_announced_takes_no_memory_before_it_comes() -> None:
    """The header of a padding frame had a follower set aside as much as a term, up to 1 GiB."""
    term_length = 1 << 30
    setup = SetupFrame(session_id=7, stream_id=LOG_STREAM_ID, term_length_bytes=term_length)
    rules = FrameRules(
        initial_term_id=0,
        term_length_bytes=term_length,
        mtu_length_bytes=65504,
        stream_id=LOG_STREAM_ID,
        checksummed=False,
    )
    receiver = LogReceiver(LogBuffer(position=0, retained_bytes=1 << 20), rules, roster(0, 1).history)
    header = struct.pack("<i", term_length) + encode_padding(64, stream_id=LOG_STREAM_ID)[4:32]

    def flow() -> None:
        image = LogImage(
            let_in(quiet_gate(), Purpose.LOG),
            lambda accepted, setup: None,
            lambda image: image.open(receiver, join_position=None),
            lambda image, reason: None,
            lambda committed: None,
        )
        image.connection_made(FakeTransport())
        receive(image, setup.encode())
        tracemalloc.start()
        try:
            receive(image, header + bytes(1 << 20))
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak < 16 << 20

    on_loop(flow)


# --- a client and its cluster


@pytest.mark.parametrize("member_id", [MANY_DIGITS, str(1 << 31), "²", "-1", ""])
def test_member_id_that_no_member_has_is_the_peers_error(member_id: str) -> None:
    """A member id with 5,000 digits raised a ValueError through the client to the application."""
    dialogue = Dialogue()
    dialogue.up(0)
    answer = session_event(EventCode.OK, detail=f"{member_id}=127.0.0.1:9000")

    with pytest.raises(RemoteProtocolError, match="bad member id"):
        dialogue.say(0, answer)


def test_position_without_end_in_an_admin_response_is_none() -> None:
    """A position with 5,000 digits in an admin response did the same."""
    dialogue = Dialogue()
    dialogue.open()
    outcomes: list[object] = []
    number = dialogue.protocol.request_admin(SNAPSHOT_WISH, outcomes.append)
    assert number is not None

    response = AdminResponse(
        cluster_session_id=ClusterSessionId(dialogue.protocol.session.cluster_session_id),
        correlation_id=CorrelationId(number),
        request_type=AdminRequestType.SNAPSHOT,
        response_code=AdminResponseCode.OK,
        payload=b"done " + MANY_DIGITS.encode(),
    )
    dialogue.feed(0, egress_frames(response.encode()))

    assert outcomes == [0]


@pytest.mark.parametrize("read", [channel_digest, demanded_cluster_id])
def test_parameters_of_a_long_channel_are_found_in_a_time_that_grows_with_its_length(read: object) -> None:
    """A response channel of 64 KiB, in a log or a snapshot, stopped the loop for 10 s."""
    assert callable(read)
    begun_s = time.process_time()

    read("?" * (1 << 15))
    read("?|" * (1 << 15))

    assert time.process_time() - begun_s < patient(2)


# --- what people write


@pytest.mark.parametrize(
    "line", [f"session_limit = {MANY_DIGITS}", f"a = {'[' * 5000}", f"a = {'{b=' * 5000}", 'directory = "a\\u0000b"']
)
def test_config_file_that_python_itself_refuses_is_a_configuration_error(tmp_path: Path, line: str) -> None:
    """A config file with long numbers, deep values or a path with a NUL ended in a traceback."""
    path = tmp_path / "node.toml"
    path.write_text(toml_of({name: value for name, value in REQUIRED.items() if name not in line}) + line)

    with environment_of({}), pytest.raises(ConfigurationError, match=r"valid TOML|a path"):
        load_node_config(path)


def test_member_id_with_too_many_digits_is_a_configuration_error() -> None:
    """So did a member id with 5,000 digits in a list of members."""
    with pytest.raises(ConfigurationError, match="bad member id"):
        parse_members(f"{MANY_DIGITS}=127.0.0.1:9000")


@pytest.mark.parametrize("text", [",", " , ,", "|", "\t,\n"])
def test_list_of_members_of_separators_alone_is_empty(text: str) -> None:
    """A list of members of separators alone was read as a cluster of no members."""
    with pytest.raises(ConfigurationError, match="empty member list"):
        parse_members(text)


def test_iterations_of_a_secrets_file_are_checked_to_their_last_digit() -> None:
    """Of `iterations 0000060000999` the first ten digits were checked and all were used."""
    text = SecretsFile.empty(bytes).text()

    with pytest.raises(ConfigurationError, match="iterations"):
        SecretsFile.parse(text.replace("iterations 60000", "iterations 0000060000999"), "secrets")


@pytest.mark.parametrize(("old", "new"), [("a003020102", "a003020109"), ("0603551d25", "0603551d13")])
def test_certificate_of_no_version_or_with_two_of_one_extension_is_refused(tmp_path: Path, old: str, new: str) -> None:
    """A certificate of an unknown version, or with an extension twice, ended in a traceback."""
    (seed,) = TARGETS[certificates.certificates.__name__].seeds()
    assert bytes.fromhex(old) in seed
    data = base64.encodebytes(seed.replace(bytes.fromhex(old), bytes.fromhex(new))).decode()
    path = tmp_path / "c.pem"
    path.write_text(f"-----BEGIN CERTIFICATE-----\n{data}-----END CERTIFICATE-----\n")

    with pytest.raises(ConfigurationError, match="no certificate"):
        read_certificates(path, "certificate")


# --- a member's own files


def test_endpoint_of_a_standby_snapshot_that_is_not_ascii_is_damage() -> None:
    """A standby snapshot with an endpoint that is not ASCII could be read and not written again."""
    entry = RecordingLogEntry(
        recording_id=1,
        leadership_term_id=0,
        term_base_log_position=0,
        log_position=64,
        timestamp=0,
        entry_type=EntryType.STANDBY_SNAPSHOT,
        archive_endpoint="standby:9004",
        entry_index=0,
        file_position=0,
    )

    with pytest.raises(RemoteProtocolError, match="expected ASCII"):
        list(read_slots(entry.encode().replace(b"standby", b"st\xe4ndby")))


def test_snapshot_with_a_tracker_of_no_service_is_refused() -> None:
    """A tracker of service -1 in a snapshot replaced the message ids of the last service."""
    base = -(1 << 63)
    module = ConsensusModuleSnapshot(next_session_id=1, next_service_session_id=base + 1, log_service_session_id=base)
    tracker = PendingMessageTracker(
        next_service_session_id=base + 1, log_service_session_id=base, pending_message_capacity=0, service_id=-1
    )

    with pytest.raises(ClusterError, match="trackers"):
        read_trackers(module, [tracker])
