"""A second lake table, fed beside bronze.events; run as a program it drains both of them once."""

from lakes import value
from oml import settings
from oml.lake.schema import BRONZE_EVENTS, LakeTable
from oml.lake.source import Source
from oml.lake.writer import LakeWriter
from systems import System

COPY = LakeTable(
    name="bronze.copy",
    doc="Every event again.",
    columns=BRONZE_EVENTS.columns,
    statistics=BRONZE_EVENTS.statistics,
)
BOTH = (BRONZE_EVENTS, COPY)


def feed(system: System) -> None:
    """Queue every event for the copy too: those of the past now, new ones with bronze's row."""
    queue = "insert into oml.outbox (tenant_id, chain_seq, target)"
    past = f"{queue} select tenant_id, seq, 'bronze.copy' from oml.journal order by tenant_id, seq"
    system.superuser.execute(past.encode())
    # Behind the row for bronze, as a target named second: on the outbox, whose rows come last.
    each = f"""create function public.copy_event() returns trigger language plpgsql as $$
        begin
          if exists (select from queued where target = 'bronze.events') then
            {queue} select tenant_id, chain_seq, 'bronze.copy' from queued
            where target = 'bronze.events' order by seq;
          end if;
          return null;
        end $$"""
    system.superuser.execute(each.encode())
    feed_again(system)
    assert value(system.superuser, "select count(*) from oml.outbox where target = 'bronze.copy'")


def feed_again(system: System) -> None:
    """Queue new events for both."""
    system.superuser.execute(
        "create trigger enqueue_copy after insert on oml.outbox referencing new table as queued"
        " for each statement execute function public.copy_event()"
    )


def stop_feeding(system: System) -> None:
    """Queue new events for bronze alone."""
    system.superuser.execute("drop trigger enqueue_copy on oml.outbox")


if __name__ == "__main__":
    configured = settings.load()
    with Source(configured.dsn) as source:
        LakeWriter(source, configured, BOTH).drain()
