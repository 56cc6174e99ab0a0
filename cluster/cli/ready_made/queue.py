"""`trimaran queue`: queues and schedules of a cluster that serves them (`trimaran up queue`).

Bodies are text in UTF-8; in lists, bytes that are no such text are shown as \\xNN.

Exit status: 0; 1 the service said no, or there is nothing; 2 wrong usage; 3 no leader in time; 12 refused.
"""

from __future__ import annotations

from itertools import islice
from typing import Annotated, Any, Final

import typer

from ....archive.tool.output import print_line
from ....client.ready_made import SyncQueueClient
from ....service_api.ready_made.queue import (
    AckMessage,
    DeleteSchedule,
    MessageState,
    NackMessage,
    QueueSettings,
    ScheduleMessages,
    SendMessage,
    SentMessage,
)
from ....service_api.ready_made.queue.messages import DEFAULT_LEASE_S
from .client import EntryLimitOption, reply_row
from .service_commands import (
    FieldFlag,
    ServiceCommands,
    exit_unless,
    parse_headers,
    parse_moment,
    show_row,
    show_rows,
)

_QUEUE: Final = ServiceCommands("queue", "Queues and schedules of a cluster that serves them.", SyncQueueClient)
app: Final = _QUEUE.app

_NAME: Final = FieldFlag("The queue.")
_SCHEDULE: Final = FieldFlag("The schedule.")
_BODY: Final = FieldFlag("The message; '-' reads standard input.")
_RECEIPT: Final = FieldFlag("The number that `receive` shows.")
_PRIORITY: Final = FieldFlag("Greater ones are received first.", metavar="0-9")
_HEADERS: Final = FieldFlag("May be given more than once.", name="header", metavar="NAME=VALUE", parse=parse_headers)
QueueArgument = Annotated[str, typer.Argument(metavar="QUEUE", help=_NAME.help, show_default=False)]


def _show_id(sent: SentMessage) -> None:
    typer.echo(sent.message_id)


def _show_nothing(is_done: bool) -> None:
    """Say nothing: a receipt that is stale is an error."""


_QUEUE.message(
    "send mail 'to: ann' --key 7",
    SendMessage,
    "Put a message into a queue, and print its id.",
    show=_show_id,
    queue=_NAME,
    body=_BODY,
    delay_s=FieldFlag("Ready only after this."),
    priority=_PRIORITY,
    key=FieldFlag("Send a key once within the queue's time for keys."),
    headers=_HEADERS,
)
_QUEUE.message(
    "ack 17",
    AckMessage,
    "Remove a message that is done; exit status 1 if its lease has ended.",
    show=_show_nothing,
    receipt=_RECEIPT,
)
_QUEUE.message(
    "nack 17 --delay 60",
    NackMessage,
    "Have a message delivered again, and print its state; exit status 1 if its lease has ended.",
    show=typer.echo,
    receipt=_RECEIPT,
    delay_s=FieldFlag("Ready only after this. [default: back-off]"),
    reason=FieldFlag("Why; kept with the message."),
)
_QUEUE.message(
    "schedule nightly mail report --cron '0 2 * * *'",
    ScheduleMessages,
    "Have a message sent at times, and print the schedule; one of this name is replaced.",
    show=show_row,
    name=_SCHEDULE,
    queue=_NAME,
    body=_BODY,
    cron=FieldFlag("Five fields, in UTC.", metavar="LINE"),
    at_s=FieldFlag("Once, such as 2027-01-01T00:00; UTC unless it says its zone.", metavar="TIME", parse=parse_moment),
    priority=_PRIORITY,
    headers=_HEADERS,
)
_QUEUE.message(
    "unschedule nightly",
    DeleteSchedule,
    "Forget a schedule; exit status 1 if there is none.",
    show=exit_unless,
    name=_SCHEDULE,
)


@_QUEUE.command("schedules")
def list_schedules(queues: SyncQueueClient) -> None:
    """Print all schedules by name, one JSON object on each line."""
    show_rows(queues.schedules())


@_QUEUE.command("receive mail --ack")
def receive_messages(
    queues: SyncQueueClient,
    queue: QueueArgument,
    limit: Annotated[int, typer.Option("-n", "--limit", min=1, max=1_000, help="How many at most.")] = 1,
    lease: Annotated[float, typer.Option("--lease", metavar="SECONDS", help="Others get none so long.")] = (
        DEFAULT_LEASE_S
    ),
    wait: Annotated[float, typer.Option("--wait", min=0, metavar="SECONDS", help="Wait so long for one.")] = 0.0,
    ack: Annotated[bool, typer.Option("--ack", help="Acknowledge each as soon as it is printed.")] = False,
) -> int:
    """Receive messages, and print one JSON object on each line; exit status 1 if there is none."""
    jobs = queues.receive(queue, limit=limit, lease_s=lease, wait_s=wait)
    for job in jobs:
        show_row(job.message)
        if ack:
            job.ack()
    return exit_unless(jobs)


@_QUEUE.command("stats")
def show_stats(
    queues: SyncQueueClient,
    queue: Annotated[str, typer.Argument(metavar="QUEUE", help="Only this one. [default: all]")] = "",
) -> None:
    """Print what is in queues, one JSON object on each line."""
    show_rows([queues.stats(queue)] if queue else queues.queues())


@_QUEUE.command("define mail --max-deliveries 9")
def define_queue(
    queues: SyncQueueClient,
    queue: QueueArgument,
    max_deliveries: Annotated[int | None, typer.Option(help="A message that fails so often is dead.")] = None,
    backoff_s: Annotated[float | None, typer.Option(help="Delay after the first failure; then doubled.")] = None,
    backoff_limit_s: Annotated[float | None, typer.Option(help="The longest delay after a failure.")] = None,
    message_limit: Annotated[int | None, typer.Option(help="Refuse to hold more messages.")] = None,
    size_limit_bytes: Annotated[int | None, typer.Option(help="Refuse to hold more bytes.")] = None,
    key_window_s: Annotated[float | None, typer.Option(help="How long a key is remembered.")] = None,
) -> None:
    """Say how a queue works, and print it; what you do not give stays."""
    given = {
        "max_deliveries": max_deliveries,
        "backoff_s": backoff_s,
        "backoff_limit_s": backoff_limit_s,
        "message_limit": message_limit,
        "size_limit_bytes": size_limit_bytes,
        "key_window_s": key_window_s,
    }
    changes: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    chosen = QueueSettings(**vars(queues.settings(queue)) | changes)
    if changes:
        queues.define(queue, chosen)
    print_line({"name": queue, **reply_row(chosen)})


@_QUEUE.command("dead mail --revive")
def show_dead_messages(
    queues: SyncQueueClient,
    queue: QueueArgument,
    revive: Annotated[bool, typer.Option("--revive", help="Make each that is printed ready again.")] = False,
    message_id: Annotated[int | None, typer.Option("--id", metavar="ID", help="Only this message.")] = None,
    limit: EntryLimitOption = 1_000,
) -> int:
    """Print dead messages by id, one JSON object on each line; exit status 1 if there is none."""
    found = (each for each in queues.dead(queue) if message_id in (None, each.message_id))
    count = 0
    for message in islice(found, limit):
        count += 1
        show_row(message)
        if revive:
            queues.revive(queue, message.message_id)
    return exit_unless(count)


@_QUEUE.command("purge mail --state dead")
def purge_queue(
    queues: SyncQueueClient,
    queue: QueueArgument,
    state: Annotated[
        list[MessageState] | None,
        typer.Option("--state", help="Only these; may be given more than once. [default: ready, delayed]"),
    ] = None,
) -> None:
    """Remove messages that nobody has received, and print how many; there is no way back."""
    typer.echo(queues.purge(queue, *(state or ())))
