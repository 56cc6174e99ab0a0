"""The chat of the examples: who is there, what is said, and a leader that is killed while it is."""

from __future__ import annotations

import pytest

from examples.chat import HISTORY_LIMIT, Chat, ChatClient, ChatRefused, Join, Line, Presence, Say, Who
from trimaran.cluster.testing import MemoryCluster, TypedHarness


def test_a_newcomer_gets_what_it_has_missed_and_no_more_than_is_kept() -> None:
    chat = TypedHarness(Chat)
    chat.call(Join("lobby", "ann"))
    for number in range(HISTORY_LIMIT + 5):
        chat.call(Say(f"line {number}"))
    chat.restart()

    kept = chat.service.history["lobby"]

    assert [kept[0].text, kept[-1].text, len(kept)] == ["line 5", f"line {HISTORY_LIMIT + 4}", HISTORY_LIMIT]
    with pytest.raises(ChatRefused, match="already"):
        chat.call(Join("lobby", "bob"))


def test_two_people_see_each_other_come_speak_and_go_also_when_the_leader_dies() -> None:
    with MemoryCluster(Chat) as cluster:

        async def test() -> None:
            ann, bob = ChatClient(await cluster.connect()), ChatClient(await cluster.connect())
            assert await ann.join("lobby", "ann") == []
            seen = ann.events(Line, Presence)
            assert await anext(seen) == Presence("lobby", "ann", is_there=True)
            with pytest.raises(ChatRefused, match="'ann' is taken"):
                await bob.join("lobby", "ann")
            await ann.say("is anybody there?")
            assert await anext(seen) == Line(1, "lobby", "ann", "is anybody there?")
            cluster.kill_leader()
            assert [line.text for line in await bob.join("lobby", "bob")] == ["is anybody there?"]
            assert await anext(seen) == Presence("lobby", "bob", is_there=True)
            assert await bob.who("lobby") == ["ann", "bob"]
            await bob.aclose()
            assert await anext(seen) == Presence("lobby", "bob", is_there=False)
            assert await ann.ask(Who("lobby")) == ["ann"]
            await cluster.restart()
            await cluster.assert_identical()

        cluster.run(test())
