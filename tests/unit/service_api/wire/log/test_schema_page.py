"""docs/log-schema.md: its entry is read as the page says, and its table names the messages that there are."""

from __future__ import annotations

import re

from tests.places import ROOT
from trimaran.cluster.messages.replies import KeptReply, SessionRequests
from trimaran.cluster.messages.snapshot import FeatureLevelSnapshot
from trimaran.service_api.wire.log.code_digest import CodedSnapshotMarker, CodedTermEvent
from trimaran.service_api.wire.log.messages import EntrySkip, FeatureLevelRaise
from trimaran.service_api.wire.message import PassedOverMessage

PAGE = (ROOT / "docs" / "log-schema.md").read_text()


def test_the_entry_of_the_page_is_read_as_the_page_says() -> None:
    (example,) = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)

    exec(compile(example, "rate_limit.py", "exec", dont_inherit=True), {"__name__": "rate_limit"})


def test_the_page_names_the_messages_that_differ_from_the_schema() -> None:
    differing = (CodedTermEvent, CodedSnapshotMarker, EntrySkip, FeatureLevelRaise)
    passed_over = (SessionRequests, KeptReply, FeatureLevelSnapshot)

    assert all(f"`{message.__name__}`" in PAGE for message in (*differing, *passed_over))
    assert {*PassedOverMessage.__subclasses__()} >= {*passed_over}
    ids, optional = PassedOverMessage.TEMPLATE_IDS, PassedOverMessage.OPTIONAL_TEMPLATE_IDS
    assert f"from {ids.start} to {ids.stop - 1}" in PAGE
    assert f"from {ids.start} to {optional.start - 1}" in PAGE
    assert f"from {optional.start} to {optional.stop - 1}" in PAGE
