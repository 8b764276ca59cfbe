"""The bus of messages, and how patiently a worker tries."""

from __future__ import annotations

from contexture.adapters.bus import registry
from contexture.adapters.bus.registry import BusOptions
from contexture.config import Settings
from contexture.errors import InvalidRequest
from contexture.ports import Bus
from contexture.resilience.retry import Retries


def bus(settings: Settings) -> Bus | None:
    """The bus that the settings name; None when they name none."""
    if not settings.bus:
        return None
    topics = settings.bus_inbound, settings.bus_outbound, settings.bus_dead
    if len(set(topics)) < len(topics):
        raise InvalidRequest("CONTEXTURE_BUS_INBOUND, _OUTBOUND and _DEAD must be three different topics")
    return registry.load(
        settings.bus,
        BusOptions(
            topics=topics,
            group=settings.bus_group,
            partitions=settings.bus_partitions,
            at_once=settings.worker_concurrency,
            redeliver_seconds=settings.bus_redeliver_seconds,
            grace_seconds=settings.shutdown_seconds,
            extra=settings.bus_options,
        ),
    )


def worker_retries(settings: Settings) -> Retries:
    """How often a worker tries a message again."""
    return Retries(most=settings.worker_retries, base_seconds=settings.worker_retry_seconds)
