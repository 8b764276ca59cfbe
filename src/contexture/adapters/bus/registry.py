"""Buses by their address; a backend is imported when it is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from contexture.errors import InvalidRequest, UnknownAdapter
from contexture.ports import Bus


@dataclass(frozen=True, kw_only=True, slots=True)
class BusOptions:
    """How a bus is used.

    `topics` are made when they are missing, each of so many `partitions`. Messages are shared by all processes of one
    `group`, each of which handles `at_once` of them. One that falls silent for `redeliver_seconds` is given up. Work
    under way may take `grace_seconds` to end. `extra` goes to the client library as it is.
    """

    topics: tuple[str, ...]
    group: str = "contexture"
    partitions: int = 16
    at_once: int = 8
    redeliver_seconds: float = 30.0
    grace_seconds: float = 10.0
    extra: Mapping[str, str | int | bool] = field(default_factory=dict[str, str | int | bool])


def load(address: str, options: BusOptions) -> Bus:
    """The bus at an address such as `nats://127.0.0.1:4222` or `kafka://one:9092,two:9092`; nothing is reached yet."""
    scheme, _, rest = address.partition("://")
    if not rest:
        raise InvalidRequest(f"{address!r} is not the address of a bus; write nats://HOST:PORT or kafka://HOST:PORT")
    if scheme == "kafka":
        from contexture.adapters.bus.kafka import KafkaBus

        return KafkaBus(rest, options)
    if scheme in {"nats", "tls"}:
        from contexture.adapters.bus.nats import NatsBus

        return NatsBus([f"{scheme}://{each.removeprefix(f'{scheme}://')}" for each in rest.split(",")], options)
    raise UnknownAdapter(f"no bus is called {scheme!r}; there are 'nats', 'tls' (NATS over TLS) and 'kafka'")
