"""The queues against a model: any commands, time and restarts in any order."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from trimaran.cluster.testing import TypedHarness
from trimaran.service_api.ready_made.queue import (
    AckMessage,
    DefineQueue,
    ExtendLease,
    ListDeadMessages,
    MessageState,
    NackMessage,
    PurgeMessages,
    QueueReady,
    QueueService,
    QueueSettings,
    ReadQueueStats,
    ReceiveMessages,
    ReviveMessage,
    SendMessage,
    StaleReceiptError,
)

QUEUES = st.sampled_from(["q", "r"])
READY, DELAYED, LEASED, DEAD = MessageState
MAX_DELIVERIES = 2
KEY_WINDOW_S = 4


@dataclass
class Modelled:
    """A message as the model has it; times are seconds since the beginning."""

    queue: str
    priority: int
    state: MessageState
    due_s: int = 0
    delivery_count: int = 0
    receipt: int = 0
    is_with_session: bool = False


class QueueMachine(RuleBasedStateMachine):
    """The model is a plain dict of messages, and moves each of them when time goes on by a second."""

    def __init__(self) -> None:
        super().__init__()
        self.queues = TypedHarness(QueueService)
        for name in ("q", "r"):
            chosen = QueueSettings(MAX_DELIVERIES, backoff_s=1, backoff_limit_s=2, key_window_s=KEY_WINDOW_S)
            self.queues.call(DefineQueue(name, chosen))
        self.worker = self.queues.open_session()
        self.model: dict[int, Modelled] = {}
        self.keys: dict[tuple[str, str], tuple[int, int]] = {}
        self.stale: set[int] = set()
        self.waiters: dict[int, str] = {}
        self.woken: list[int] = []
        self.now_s = 0

    # --- the model

    def make_ready(self, message: Modelled, delay_s: int) -> None:
        message.state, message.due_s = (DELAYED, self.now_s + delay_s) if delay_s else (READY, 0)
        self.end_lease(message)
        if not delay_s:
            number = next((number for number, queue in self.waiters.items() if queue == message.queue), None)
            if number is not None:
                del self.waiters[number]
                self.woken.append(number)

    def end_lease(self, message: Modelled) -> None:
        if message.receipt:
            self.stale.add(message.receipt)
        message.receipt, message.is_with_session = 0, False

    def fail(self, message: Modelled, delay_s: int | None = None) -> None:
        if message.delivery_count >= MAX_DELIVERIES:
            message.state, message.due_s = DEAD, 0
            self.end_lease(message)
        else:
            self.make_ready(message, message.delivery_count if delay_s is None else delay_s)

    def in_state(self, queue: str, state: MessageState) -> list[int]:
        found = [number for number, each in self.model.items() if (each.queue, each.state) == (queue, state)]
        return sorted(found, key=lambda number: (0 if state is DEAD else -self.model[number].priority, number))

    def leased(self) -> list[int]:
        return [number for number, each in self.model.items() if each.state is LEASED]

    # --- commands

    @rule(queue=QUEUES, priority=st.integers(0, 2), delay_s=st.integers(0, 2), key=st.sampled_from(["", "", "k"]))
    def send(self, queue: str, priority: int, delay_s: int, key: str) -> None:
        sent = self.queues.call(SendMessage(queue, b"x", delay_s, priority, key))
        assert sent.is_duplicate is ((queue, key) in self.keys)
        if sent.is_duplicate:
            assert sent.message_id == self.keys[queue, key][0]
            return
        assert sent.message_id not in self.model
        message = self.model[sent.message_id] = Modelled(queue, priority, READY)
        self.make_ready(message, delay_s)
        if key:
            self.keys[queue, key] = (sent.message_id, self.now_s + KEY_WINDOW_S)

    @rule(
        queue=QUEUES,
        limit=st.integers(1, 3),
        lease_s=st.integers(1, 3),
        is_with_session=st.booleans(),
        waiter=st.none() | st.integers(1, 2),
    )
    def receive(self, queue: str, limit: int, lease_s: int, is_with_session: bool, waiter: int | None) -> None:
        session = self.worker if is_with_session else self.queues.client
        command = ReceiveMessages(queue, limit, lease_s, is_with_session, None if is_with_session else waiter)
        route = self.queues.route(ReceiveMessages)
        received = route.read(session.request(route.payload(command)))
        expected = self.in_state(queue, READY)[:limit]
        assert [each.message_id for each in received] == expected
        if command.waiter is not None:
            self.waiters.pop(command.waiter, None)
            if not received:
                self.waiters[command.waiter] = queue
        for each in received:
            message = self.model[each.message_id]
            message.delivery_count += 1
            assert each.delivery_count == message.delivery_count
            assert each.receipt not in self.stale
            message.state, message.due_s = LEASED, self.now_s + lease_s
            message.receipt, message.is_with_session = each.receipt, is_with_session

    @precondition(lambda self: self.leased())
    @rule(data=st.data(), how=st.sampled_from(["ack", "nack", "nack now", "give back", "extend"]))
    def settle(self, data: st.DataObject, how: str) -> None:
        number = data.draw(st.sampled_from(self.leased()))
        message = self.model[number]
        receipt = message.receipt
        if how == "ack":
            assert self.queues.call(AckMessage(receipt))
            self.stale.add(receipt)
            del self.model[number]
        elif how == "give back":
            assert self.queues.call(NackMessage(receipt, is_counted=False)) is READY
            message.delivery_count -= 1
            self.make_ready(message, 0)
        elif how == "extend":
            self.queues.call(ExtendLease(receipt, 3))
            message.due_s = self.now_s + 3
        else:
            delay_s = 0 if how == "nack now" else None
            state = self.queues.call(NackMessage(receipt, delay_s))
            self.fail(message, delay_s)
            assert state is message.state

    @precondition(lambda self: self.stale)
    @rule(data=st.data(), kind=st.sampled_from([AckMessage, NackMessage, ExtendLease]))
    def settle_what_is_stale(
        self, data: st.DataObject, kind: type[AckMessage] | type[NackMessage] | type[ExtendLease]
    ) -> None:
        receipt = data.draw(st.sampled_from(sorted(self.stale)))
        with pytest.raises(StaleReceiptError, match=f"receipt={receipt}"):
            self.queues.call(kind(receipt))

    @rule(queue=QUEUES, state=st.sampled_from([READY, DELAYED, DEAD]))
    def purge(self, queue: str, state: MessageState) -> None:
        found = self.in_state(queue, state)
        assert self.queues.call(PurgeMessages(queue, state)) == len(found)
        for number in found:
            del self.model[number]

    @precondition(lambda self: any(each.state is DEAD for each in self.model.values()))
    @rule(data=st.data())
    def revive(self, data: st.DataObject) -> None:
        dead = [number for number, each in self.model.items() if each.state is DEAD]
        number = data.draw(st.sampled_from(dead))
        assert self.queues.call(ReviveMessage(self.model[number].queue, number))
        self.model[number].delivery_count = 0
        self.make_ready(self.model[number], 0)

    # --- what happens

    @rule()
    def wait(self) -> None:
        self.now_s += 1
        self.queues.advance(1)
        due = [number for number, each in self.model.items() if each.due_s and each.due_s <= self.now_s]
        for number in sorted(due):
            message = self.model[number]
            if message.state is LEASED:
                self.fail(message)
            else:
                self.make_ready(message, 0)
        self.keys = {key: value for key, value in self.keys.items() if value[1] > self.now_s}

    @rule()
    def close_session(self) -> None:
        self.worker.close()
        self.worker = self.queues.open_session()
        bound = [each for each in self.model.values() if each.is_with_session]
        for message in sorted(bound, key=lambda each: each.receipt):
            self.fail(message)

    @rule()
    def restart(self) -> None:
        self.take_events()
        self.queues.restart()

    def take_events(self) -> None:
        assert [event.waiter for event in self.queues.events(QueueReady)] == self.woken
        self.queues.egress.clear()
        self.woken.clear()

    # --- what holds

    @invariant()
    def queues_are_the_model(self) -> None:
        for queue in ("q", "r"):
            stats = self.queues.ask(ReadQueueStats(queue))
            counts = [len(self.in_state(queue, state)) for state in MessageState]
            assert [stats.ready, stats.delayed, stats.leased, stats.dead] == counts
            assert stats.waiters == sum(each == queue for each in self.waiters.values())
            dead = [each.message_id for each in self.queues.ask(ListDeadMessages(queue))]
            assert dead == self.in_state(queue, DEAD)
        self.take_events()

    @invariant()
    def the_state_agrees_with_itself(self) -> None:
        service = self.queues.service
        receipts = {each.receipt: number for number, each in service.messages.items() if each.receipt}
        assert dict(service.leases) == receipts
        assert service.store_bytes == sum(each.size_bytes for each in service.messages.values())
        assert len(service.timers) <= 1
        assert set(service.keys) == set(self.keys)


QueueMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=30)
TestQueueMachine = QueueMachine.TestCase
