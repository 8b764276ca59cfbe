"""Loads message buses by address; a backend is imported only when it is used."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from contexture.errors import InvalidRequest, UnknownAdapter
from contexture.ports import Bus


@dataclass(frozen=True, kw_only=True, slots=True)
class BusOptions:
    """Options of a message bus.

    Missing `topics` are created, each with this many `partitions`. All processes of a `group` share the messages, and
    each handles `at_once` concurrently. Messages of a process that is silent for `redeliver_seconds` are redelivered.
    On shutdown, running handlers get `grace_seconds` to finish. `extra` is passed to the client library.
    """

    topics: tuple[str, ...]
    group: str = "contexture"
    partitions: int = 16
    at_once: int = 8
    redeliver_seconds: float = 30.0
    grace_seconds: float = 10.0
    extra: Mapping[str, str | int | bool] = field(default_factory=dict[str, str | int | bool])


def load_bus(address: str, options: BusOptions) -> Bus:
    """Bus at an address such as `nats://127.0.0.1:4222` or `kafka://one:9092,two:9092`; does not connect yet.

    Raises `InvalidRequest` for an invalid address and `UnknownAdapter` for an unknown scheme.
    """
    scheme, _, rest = address.partition("://")
    if not rest:
        raise InvalidRequest(f"{address!r} is not the address of a bus; write nats://HOST:PORT or kafka://HOST:PORT")
    if scheme == "kafka":
        from contexture.adapters.bus.kafka import KafkaBus

        return KafkaBus(rest, options)
    if scheme in {"nats", "tls"}:
        from contexture.adapters.bus.nats import NatsBus

        return NatsBus([f"{scheme}://{each.removeprefix(f'{scheme}://')}" for each in rest.split(",")], options)
    raise UnknownAdapter(f"unknown bus {scheme!r}; use 'nats', 'tls' (NATS over TLS) or 'kafka'")
