"""A session whose messages are numbered, sent in order, and sent again, in order, when some may be lost."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from .....service_api import SessionClosedError
from .....service_api.groups.group import Group
from ..services.registers import ANSWER_LIMIT, Answer, AnswerStatus
from .application import FULL_PAUSE_S, Session
from .history import ClientOperation
from .paths import OneSession
from .register_notes import RegisterNotes


@dataclass(slots=True)
class _Unanswered:
    """A message that was begun."""

    operation: ClientOperation
    payload: bytes
    future: asyncio.Future[None]


class RegisterSession(Session):
    """Numbered messages, sent in order, and again in order when some may be lost."""

    def __init__(self, number: int, group: Group | None, client_id: int, notes: RegisterNotes) -> None:
        super().__init__(number, group)
        self.client_id = client_id
        self.sequence = 0
        """The newest number; they are counted from 1."""
        self._notes = notes
        self._unanswered: dict[int, _Unanswered] = {}
        """By sequence, in order."""
        self._next_to_send = 1
        self._is_waiting = False
        """True if the client has not taken a message, which is to be offered once more."""
        self._answers: dict[int, bytes] = {}
        """The latest, to be held against those that come again."""

    def send(self, sequence: int, operation: ClientOperation, payload: bytes) -> asyncio.Future[None]:
        """Send a message; the result is done once it is answered."""
        future = asyncio.get_running_loop().create_future()
        self._unanswered[sequence] = _Unanswered(operation, payload, future)
        self._send()
        return future

    def give_up(self) -> None:
        """Give up what is not answered."""
        for unanswered in self._unanswered.values():
            self._notes.give_up(unanswered.operation)
            unanswered.future.cancel()
        self._unanswered.clear()

    def on_message(self, timestamp: int, leadership_term_id: int, payload: memoryview) -> None:
        """Take an answer."""
        data = bytes(payload)
        answer = self._notes.decode(data)
        if answer is None:
            return
        if answer.client_id != self.client_id or not 0 < answer.sequence <= self.sequence:
            self._notes.report(f"client={self.client_id} an answer to nothing it has asked: {answer}")
        elif answer.status is AnswerStatus.GAP:
            if answer.sequence in self._unanswered:
                self._send_again()  # a message went astray and a later one did not
        else:
            known = self._answers.setdefault(answer.sequence, data)
            if known != data:
                self._notes.report(
                    f"client={self.client_id} message {answer.sequence} was answered {Answer.decode(known)} and then"
                    f" {answer}"
                )
            elif answer.sequence in self._unanswered:
                self._on_answer(answer)

    def on_new_leader(self, leadership_term_id: int, leader_member_id: int) -> None:
        """Send again what is not answered."""
        if self._unanswered:
            self._send_again()

    def _on_answer(self, answer: Answer) -> None:
        unanswered = self._unanswered.pop(answer.sequence)
        self._notes.acknowledge(unanswered.operation, answer, answer.log_position)
        if not unanswered.future.done():
            unanswered.future.set_result(None)
        if len(self._answers) > ANSWER_LIMIT:
            del self._answers[next(iter(self._answers))]

    def _send_again(self) -> None:
        """Send from the first one on that is not answered, when the client has returned from its callback."""
        self._next_to_send = min(self._next_to_send, next(iter(self._unanswered)))
        asyncio.get_running_loop().call_soon(self._send)

    def _send_later(self) -> None:
        self._is_waiting = False
        self._send()

    def _send(self) -> None:
        """Offer what is to be sent, in order; what the client does not take now is offered later."""
        assert isinstance(self.path, OneSession)
        for sequence, unanswered in self._unanswered.items():
            if sequence < self._next_to_send:
                continue
            try:
                is_taken = self.path.client.try_offer(unanswered.payload)
            except SessionClosedError:
                return
            if not is_taken:
                if not self._is_waiting:
                    self._is_waiting = True
                    asyncio.get_running_loop().call_later(FULL_PAUSE_S, self._send_later)
                return
            self._next_to_send = sequence + 1
