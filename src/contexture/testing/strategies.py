"""Hypothesis strategies for scopes, records and filters."""

from datetime import UTC, datetime

from hypothesis import strategies as st

from contexture.types import (
    PUBLIC,
    And,
    AnyOf,
    Contains,
    Equals,
    Filter,
    Not,
    Or,
    Range,
    Record,
    Scope,
)

TENANTS = ("acme", "globex")
USERS = ("anna", "boris")
GROUPS = ("sales", "staff")
SOURCES = ("wire", "blog", "desk")
FIELDS = ("source", "lang", "tags", "title")
WORDS = ("budget", "token", "prompt", "river", "stone", "бюджет", "река", "камень", "the", "и")
_PRINCIPALS = (*(f"user:{name}" for name in USERS), *(f"group:{name}" for name in GROUPS), PUBLIC)


def times() -> st.SearchStrategy[datetime]:
    """Times with a zone, around the present."""
    return st.datetimes(datetime(2020, 1, 1), datetime(2030, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001 - hypothesis wants naive bounds and adds the zone


def prose() -> st.SearchStrategy[str]:
    """Short texts of English and Russian words, with repeats likely."""
    return st.lists(st.sampled_from(WORDS), max_size=40).map(" ".join)


def scopes() -> st.SearchStrategy[Scope]:
    """Users of a few tenants and groups."""
    groups = st.lists(st.sampled_from(GROUPS), unique=True).map(tuple)
    return st.builds(Scope, tenant=st.sampled_from(TENANTS), user=st.sampled_from(USERS), groups=groups)


@st.composite
def records(draw: st.DrawFn) -> Record:
    """A record with a payload that `filters` may or may not match."""
    return Record(
        id=draw(st.uuids()).hex,
        text=draw(prose()),
        acl=tuple(draw(st.lists(st.sampled_from(_PRINCIPALS), unique=True, max_size=3))),
        title=draw(prose()),
        lang=draw(st.sampled_from(("en", "ru", ""))),
        source=draw(st.sampled_from(SOURCES)),
        time=draw(st.none() | times()),
        payload=draw(payloads()),
    )


def payloads() -> st.SearchStrategy[dict[str, object]]:
    """Fields of every type that filters know, each of which may be missing."""
    return st.fixed_dictionaries(
        {},
        optional={
            "tags": st.lists(st.sampled_from(WORDS), unique=True, max_size=3),
            "rating": _ratings(),
            "pinned": st.booleans(),
        },
    )


def record_lists(max_size: int = 12) -> st.SearchStrategy[list[Record]]:
    """Records with different ids."""
    return st.lists(records(), max_size=max_size, unique_by=lambda record: record.id)


def filters(max_leaves: int = 8) -> st.SearchStrategy[Filter]:
    """Filter trees over `source`, `lang`, `tags`, `title`, `rating`, `pinned` and `time`."""
    return st.recursive(_leaves(), _branches, max_leaves=max_leaves)


def _leaves() -> st.SearchStrategy[Filter]:
    words = st.sampled_from((*SOURCES, "en", "ru", *WORDS))
    fields = st.sampled_from(FIELDS)
    return st.one_of(
        st.builds(Equals, fields, words),
        st.builds(Equals, st.just("pinned"), st.booleans()),
        st.builds(AnyOf, fields, st.lists(words, max_size=3).map(tuple)),
        st.builds(Equals, st.just("rating"), _ratings()),
        st.builds(AnyOf, st.just("rating"), st.lists(_ratings(), max_size=3).map(tuple)),
        st.builds(Range, field=st.just("rating"), gte=_bounds(), lt=_bounds()),
        st.builds(Range, field=st.just("time"), gt=st.none() | times(), lte=st.none() | times()),
        st.builds(Contains, st.just("source"), st.text("wirebloge", max_size=3)),
        st.builds(Contains, st.sampled_from(("tags", "title")), st.text("tokenре ", max_size=3)),
    )


def _ratings() -> st.SearchStrategy[float]:
    return st.integers(0, 5) | st.floats(0, 5) | st.sampled_from((-0.0, 2**53, 2**53 + 1))


def _bounds() -> st.SearchStrategy[float | None]:
    return st.none() | _ratings()


def _branches(parts: st.SearchStrategy[Filter]) -> st.SearchStrategy[Filter]:
    several = st.lists(parts, max_size=3).map(tuple)
    return st.one_of(st.builds(And, several), st.builds(Or, several), st.builds(Not, parts))
