"""The only place where a name in the settings becomes an object."""

from contexture.wiring.access import policy, secrets
from contexture.wiring.core import (
    SystemClock,
    encoders,
    index,
    operator,
    preparer,
    query_builder,
    redactor,
    search,
)
from contexture.wiring.memory import local_memory, memory_health, memory_service
from contexture.wiring.turn import TurnParts, turn_builder

__all__ = [
    "SystemClock",
    "TurnParts",
    "encoders",
    "index",
    "local_memory",
    "memory_health",
    "memory_service",
    "operator",
    "policy",
    "preparer",
    "query_builder",
    "redactor",
    "search",
    "secrets",
    "turn_builder",
]
