"""`trimaran queue`: queues and schedules of a cluster that serves them (`trimaran up queue`).

Bodies are text in UTF-8; in lists, bytes that are no such text are shown as \\xNN.

Exit status: 0; 1 the service said no, or there is nothing; 2 wrong usage; 3 no leader in time; 12 refused.
"""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import islice
from typing import Annotated, Any, Final

import typer

from ....archive.tool.output import EXIT_FAILED, new_group, print_line
from ....client.ready_made import SyncQueueClient
from ....service_api.errors import ConfigurationError
from ....service_api.ready_made.queue import MessageState, QueueSchedule, QueueSettings, QueueStats
from ....service_api.ready_made.queue.messages import DEFAULT_LEASE_S
from ..shared.setting_flags import with_client_flags
from .client import EntryLimitOption, UserOption, WaitOption, as_text, connected, read_argument

app: Final = new_group("Queues and schedules of a cluster that serves them.")

QueueArgument = Annotated[str, typer.Argument(metavar="QUEUE", help="The queue.", show_default=False)]
BodyArgument = Annotated[
    str, typer.Argument(metavar="BODY", help="The message; '-' reads standard input.", show_default=False)
]
ReceiptArgument = Annotated[int, typer.Argument(metavar="RECEIPT", help="As `receive` shows it.", show_default=False)]
PriorityOption = Annotated[int, typer.Option("--priority", metavar="0-9", help="Greater ones are received first.")]
HeaderOption = Annotated[
    list[str] | None, typer.Option("--header", metavar="NAME=VALUE", help="May be given more than once.")
]


@app.command("send", epilog="Example: trimaran queue send mail 'to: ann' --key 7 --config trimaran-data/cluster.toml")
@with_client_flags
def send_message_command(
    queue: QueueArgument,
    body: BodyArgument,
    delay: Annotated[float, typer.Option("--delay", metavar="SECONDS", help="Ready only after this.")] = 0.0,
    priority: PriorityOption = 0,
    key: Annotated[str, typer.Option("--key", help="Send a key once within the queue's time for keys.")] = "",
    header: HeaderOption = None,
    user: UserOption = "",
    timeout: WaitOption = 5.0,
    **settings: Any,
) -> None:
    """Put a message into a queue, and print its id."""
    headers = _headers(header)
    data = read_argument(body)
    with connected(SyncQueueClient, settings, user, timeout) as queues:
        typer.echo(queues.send(queue, data, delay_s=delay, priority=priority, key=key, headers=headers))


@app.command("receive", epilog="Example: trimaran queue receive mail --ack --config trimaran-data/cluster.toml")
@with_client_flags
def receive_messages_command(
    queue: QueueArgument,
    limit: Annotated[int, typer.Option("-n", "--limit", min=1, max=1_000, help="How many at most.")] = 1,
    lease: Annotated[float, typer.Option("--lease", metavar="SECONDS", help="Others get none so long.")] = (
        DEFAULT_LEASE_S
    ),
    wait: Annotated[float, typer.Option("--wait", min=0, metavar="SECONDS", help="Wait so long for one.")] = 0.0,
    ack: Annotated[bool, typer.Option("--ack", help="Acknowledge each as soon as it is printed.")] = False,
    user: UserOption = "",
    timeout: WaitOption = 5.0,
    **settings: Any,
) -> None:
    """Receive messages, and print one JSON object on each line; exit status 1 if there is none."""
    with connected(SyncQueueClient, settings, user, timeout) as queues:
        jobs = queues.receive(queue, limit=limit, lease_s=lease, wait_s=wait)
        for job in jobs:
            message = job.message
            print_line(
                {
                    "message_id": message.message_id,
                    "receipt": message.receipt,
                    "body": as_text(message.body),
                    "headers": message.headers,
                    "priority": message.priority,
                    "delivery_count": message.delivery_count,
                    "sent_at_s": message.sent_at_s,
                }
            )
            if ack:
                job.ack()
    raise typer.Exit(0 if jobs else EXIT_FAILED)


@app.command("ack", epilog="Example: trimaran queue ack 17 --config trimaran-data/cluster.toml")
@with_client_flags
def ack_message_command(
    receipt: ReceiptArgument, user: UserOption = "", timeout: WaitOption = 5.0, **settings: Any
) -> None:
    """Remove a message that is done; exit status 1 if its lease has ended."""
    with connected(SyncQueueClient, settings, user, timeout) as queues:
        queues.ack(receipt)


@app.command("nack", epilog="Example: trimaran queue nack 17 --delay 60 --config trimaran-data/cluster.toml")
@with_client_flags
def nack_message_command(
    receipt: ReceiptArgument,
    delay: Annotated[
        float | None, typer.Option("--delay", metavar="SECONDS", help="Ready only after this. [default: back-off]")
    ] = None,
    reason: Annotated[str, typer.Option("--reason", help="Why; kept with the message.")] = "",
    user: UserOption = "",
    timeout: WaitOption = 5.0,
    **settings: Any,
) -> None:
    """Have a message delivered again, and print its state; exit status 1 if its lease has ended."""
    with connected(SyncQueueClient, settings, user, timeout) as queues:
        typer.echo(queues.nack(receipt, delay, reason=reason).value)


@app.command("stats", epilog="Example: trimaran queue stats --config trimaran-data/cluster.toml")
@with_client_flags
def show_queue_stats(
    queue: Annotated[str, typer.Argument(metavar="QUEUE", help="Only this one. [default: all]")] = "",
    user: UserOption = "",
    timeout: WaitOption = 5.0,
    **settings: Any,
) -> None:
    """Print what is in queues, one JSON object on each line."""
    with connected(SyncQueueClient, settings, user, timeout) as queues:
        for stats in [queues.stats(queue)] if queue else queues.queues():
            print_line(_shown_stats(stats))


@app.command("define", epilog="Example: trimaran queue define mail --max-deliveries 9 --config cluster.toml")
@with_client_flags
def define_queue_command(
    queue: QueueArgument,
    max_deliveries: Annotated[int | None, typer.Option(help="A message that fails so often is dead.")] = None,
    backoff_s: Annotated[float | None, typer.Option(help="Delay after the first failure; then doubled.")] = None,
    backoff_limit_s: Annotated[float | None, typer.Option(help="The longest delay after a failure.")] = None,
    message_limit: Annotated[int | None, typer.Option(help="Refuse to hold more messages.")] = None,
    size_limit_bytes: Annotated[int | None, typer.Option(help="Refuse to hold more bytes.")] = None,
    key_window_s: Annotated[float | None, typer.Option(help="How long a key is remembered.")] = None,
    user: UserOption = "",
    timeout: WaitOption = 5.0,
    **settings: Any,
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
    changes = {name: value for name, value in given.items() if value is not None}
    with connected(SyncQueueClient, settings, user, timeout) as queues:
        chosen: dict[str, Any] = vars(queues.settings(queue)) | changes
        if changes:
            queues.define(queue, QueueSettings(**chosen))
        print_line({"name": queue, **chosen})


@app.command("dead", epilog="Example: trimaran queue dead mail --revive --config trimaran-data/cluster.toml")
@with_client_flags
def show_dead_messages(
    queue: QueueArgument,
    revive: Annotated[bool, typer.Option("--revive", help="Make each that is printed ready again.")] = False,
    message_id: Annotated[int | None, typer.Option("--id", metavar="ID", help="Only this message.")] = None,
    limit: EntryLimitOption = 1_000,
    user: UserOption = "",
    timeout: WaitOption = 5.0,
    **settings: Any,
) -> None:
    """Print dead messages by id, one JSON object on each line; exit status 1 if there is none."""
    count = 0
    with connected(SyncQueueClient, settings, user, timeout) as queues:
        found = (each for each in queues.dead(queue) if message_id in (None, each.message_id))
        for message in islice(found, limit):
            count += 1
            print_line(
                {
                    "message_id": message.message_id,
                    "body": as_text(message.body),
                    "headers": message.headers,
                    "delivery_count": message.delivery_count,
                    "died_at_s": message.died_at_s,
                    "reason": message.reason,
                }
            )
            if revive:
                queues.revive(queue, message.message_id)
    raise typer.Exit(0 if count else EXIT_FAILED)


@app.command("purge", epilog="Example: trimaran queue purge mail --state dead --config trimaran-data/cluster.toml")
@with_client_flags
def purge_queue_command(
    queue: QueueArgument,
    state: Annotated[
        list[MessageState] | None,
        typer.Option("--state", help="Only these; may be given more than once. [default: ready, delayed]"),
    ] = None,
    user: UserOption = "",
    timeout: WaitOption = 5.0,
    **settings: Any,
) -> None:
    """Remove messages that nobody has received, and print how many; there is no way back."""
    with connected(SyncQueueClient, settings, user, timeout) as queues:
        typer.echo(queues.purge(queue, *(state or ())))


@app.command(
    "schedule",
    epilog="Example: trimaran queue schedule nightly mail report --cron '0 2 * * *' --config cluster.toml",
)
@with_client_flags
def schedule_messages_command(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Of the schedule.", show_default=False)],
    queue: QueueArgument,
    body: BodyArgument,
    cron: Annotated[str, typer.Option("--cron", metavar="LINE", help="Five fields, in UTC.")] = "",
    at: Annotated[
        str, typer.Option("--at", metavar="TIME", help="Once, such as 2027-01-01T00:00; UTC unless it says its zone.")
    ] = "",
    priority: PriorityOption = 0,
    header: HeaderOption = None,
    user: UserOption = "",
    timeout: WaitOption = 5.0,
    **settings: Any,
) -> None:
    """Have a message sent at times, and print the schedule; one of this name is replaced."""
    headers, moment, data = _headers(header), _moment(at), read_argument(body)
    with connected(SyncQueueClient, settings, user, timeout) as queues:
        print_line(
            _shown_schedule(
                queues.schedule(name, queue, data, cron=cron, at=moment, priority=priority, headers=headers)
            )
        )


@app.command("schedules", epilog="Example: trimaran queue schedules --config trimaran-data/cluster.toml")
@with_client_flags
def list_schedules_command(user: UserOption = "", timeout: WaitOption = 5.0, **settings: Any) -> None:
    """Print all schedules by name, one JSON object on each line."""
    with connected(SyncQueueClient, settings, user, timeout) as queues:
        for schedule in queues.schedules():
            print_line(_shown_schedule(schedule))


@app.command("unschedule", epilog="Example: trimaran queue unschedule nightly --config trimaran-data/cluster.toml")
@with_client_flags
def delete_schedule_command(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Of the schedule.", show_default=False)],
    user: UserOption = "",
    timeout: WaitOption = 5.0,
    **settings: Any,
) -> None:
    """Forget a schedule; exit status 1 if there is none."""
    with connected(SyncQueueClient, settings, user, timeout) as queues:
        is_found = queues.unschedule(name)
    raise typer.Exit(0 if is_found else EXIT_FAILED)


def _headers(given: list[str] | None) -> dict[str, str]:
    headers: dict[str, str] = {}
    for each in given or ():
        name, equals, value = each.partition("=")
        if not equals or not name:
            raise ConfigurationError(f"--header={each} expected NAME=VALUE")
        headers[name] = value
    return headers


def _moment(text: str) -> datetime | None:
    if not text:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        raise ConfigurationError(f"--at={text} expected a time, such as 2027-01-01T00:00") from error
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found


def _shown_stats(stats: QueueStats) -> dict[str, object]:
    return {
        "name": stats.name,
        "ready": stats.ready,
        "delayed": stats.delayed,
        "leased": stats.leased,
        "dead": stats.dead,
        "size_bytes": stats.size_bytes,
        "oldest_ready_age_s": round(stats.oldest_ready_age_s, 3),
        "waiters": stats.waiters,
    }


def _shown_schedule(schedule: QueueSchedule) -> dict[str, object]:
    return {
        "name": schedule.name,
        "queue": schedule.queue,
        "body": as_text(schedule.body),
        "cron": schedule.cron,
        "next_at": datetime.fromtimestamp(schedule.next_at_s, UTC).isoformat(),
        "fired_count": schedule.fired_count,
        "refused_count": schedule.refused_count,
    }
