"""The JSON documents that one process asks another for: status, inspection, operations.

The two processes may run different versions of Trimaran: a cluster is upgraded a member at a time, and a tool or a
Spark driver is older or newer than the members it asks. So a document is written strictly and read tolerantly:

- A field that the reader does not know is ignored. A field that is added later has a default, for documents of older
  members. Neither changes `schema_version`.
- `schema_version` rises where an older reader would misunderstand: a field goes or changes its meaning, an enumeration
  gets a value, a request gets an option that must not be ignored. A reader refuses such a document and says what to do.

A document that is kept, in a file or a store, is sealed: its text begins with the digest of the rest, so that no
flipped bit gives it another meaning. That is no proof of who wrote it.

The document of another process is checked like any input: its length before it is stored, its text before it is shown.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Annotated, ClassVar, Final, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ..cluster_id import CLUSTER_ID_PATTERN
from ..errors import RemoteProtocolError

LINE_LENGTH_LIMIT: Final = 200
_SEAL: Final = b'{"sha256":"%s",'
_INT64_MAX: Final = (1 << 63) - 1

Line = Annotated[str, Field(max_length=LINE_LENGTH_LIMIT, pattern=r"^[^\x00-\x1f\x7f-\x9f]*$")]
"""One line of text without control characters: it may end up on a terminal."""
ClusterIdLine = Annotated[str, Field(pattern=rf"^{CLUSTER_ID_PATTERN}$")]
"""The id of a cluster, as `cluster_id.format_cluster_id` writes it."""
Sha256Line = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
"""A SHA-256 in hexadecimal digits."""
Position = Annotated[int, Field(ge=0, le=_INT64_MAX)]
Id = Annotated[int, Field(ge=0, le=_INT64_MAX)]
Count = Annotated[int, Field(ge=0, le=_INT64_MAX)]
RoleName = Literal["FOLLOWER", "CANDIDATE", "LEADER"]
Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Rate = Annotated[float, Field(ge=0, allow_inf_nan=False)]
"""A number a second."""


class DocumentPart(BaseModel):
    """A part of a document, such as a row."""

    model_config = ConfigDict(frozen=True, strict=True, extra="ignore")


class Document(DocumentPart):
    """A whole document, which says in which version of its schema it is written."""

    KIND: ClassVar[str]
    """What an error calls it."""

    schema_version: int = 1
    """The default is the version that this Trimaran writes, and the only one that it reads."""


class DocumentVersionError(RemoteProtocolError):
    """A document is written in a version of its schema that this Trimaran does not read."""


class SealedDocument(Document):
    """A document that is kept: `seal` gives its text, and `read_document` reads no other."""

    def seal(self) -> bytes:
        """Return the text of the document with its digest."""
        return seal_text(self.model_dump_json().encode())


class Refusal(Document):
    """The answer, on `REFUSAL_STREAM_ID`, instead of a document that the caller may not have or that failed."""

    KIND: ClassVar[str] = "refusal"

    refused: Line
    """Who may have it, and what the caller is; or why there is no answer."""
    advice: Line
    """What the caller can do."""
    is_other_cluster: bool = False
    """Whether the caller means another cluster: nobody may have the document of that one here."""
    is_for_good: bool = False
    """True where the caller shows the certificate of a member that was removed: no member has that id ever again."""
    is_failure: bool = False
    """True where the member could not make the answer, whatever the caller is."""


DocumentT = TypeVar("DocumentT", bound=Document)


def read_document(document: type[DocumentT], payload: bytes) -> DocumentT:
    """Read a document of another process.

    Raises:
        DocumentVersionError: the schema version is another one; the error says what to do.
        RemoteProtocolError: these bytes are no such document; the error names the first wrong field, or both digests.
    """
    _check_version(document, payload)
    if issubclass(document, SealedDocument):
        _check_seal(document, payload)
    try:
        return document.model_validate_json(payload)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = printable_line(".".join(str(part) for part in first["loc"]))  # a key of the document, too
        raise RemoteProtocolError(f"not a {document.KIND}: {place + ': ' if place else ''}{first['msg']}") from None


def seal_text(text: bytes) -> bytes:
    """Put the digest of a JSON object in front of its fields."""
    return _SEAL % sha256(text).hexdigest().encode() + text[1:]


def _check_seal(document: type[Document], payload: bytes) -> None:
    begin = len(_SEAL % bytes(64))
    text = b"{" + payload[begin:]
    if seal_text(text) != payload:
        found = printable_line(payload[:begin].decode(errors="replace"))
        raise RemoteProtocolError(
            f"not a {document.KIND}: it does not begin with the digest of its text: found={found} "
            f"expected sha256={sha256(text).hexdigest()}"
        )


def _check_version(document: type[Document], payload: bytes) -> None:
    """Look at the version alone: which field is wrong first says nothing about a document of another version."""
    try:
        found = _Version.model_validate_json(payload).schema_version
    except ValidationError:
        return
    expected = document.model_fields["schema_version"].default
    if found != expected:
        advice = (
            "a newer Trimaran wrote it; upgrade the one that reads it"
            if found > expected
            else "an older Trimaran wrote it; upgrade that one"
        )
        raise DocumentVersionError(f"{document.KIND} of schema_version={found} expected={expected}: {advice}")


class _Version(DocumentPart):
    schema_version: int


def printable_line(text: str) -> str:
    """Make a `Line` of any text: one line, nothing that would move a cursor, cut off where it gets too long."""
    line = "".join(char if char.isprintable() else "?" for char in " ".join(text.split()))
    return line if len(line) <= LINE_LENGTH_LIMIT else line[: LINE_LENGTH_LIMIT - 1] + "…"
