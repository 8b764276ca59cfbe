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

__all__ = [
    "SystemClock",
    "encoders",
    "index",
    "operator",
    "policy",
    "preparer",
    "query_builder",
    "redactor",
    "search",
    "secrets",
]
