"""Who may read which access classes, however they came to be known."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from contexture.adapters.index.access_classes import AccessClass, AccessClasses, ScopeAccess
from contexture.types import Scope

TENANTS = st.sampled_from(["a", "b"])
READERS = st.sampled_from(["user:anna", "user:boris", "group:staff", "group:sales"])
FACTS = st.builds(
    AccessClass, TENANTS, st.lists(READERS, max_size=3, unique=True).map(tuple), st.integers(min_value=0, max_value=3)
)
SCOPES = st.builds(
    Scope,
    tenant=TENANTS,
    user=st.sampled_from(["anna", "boris", "clara"]),
    groups=st.lists(st.sampled_from(["staff", "sales"]), unique=True).map(tuple),
)


def looked_at_one_by_one(scope: Scope, known: Mapping[int, AccessClass]) -> ScopeAccess:
    """The same, said plainly."""
    mine = {number for number, one in known.items() if one.tenant == scope.tenant}
    allowed = frozenset(number for number in mine if set(known[number].readers) & set(scope.principals))
    readable = frozenset(number for number in allowed if known[number].passages)
    hidden = frozenset(number for number, one in known.items() if one.passages) - readable
    return ScopeAccess(
        allowed=allowed,
        readable=readable,
        hidden=hidden if len(hidden) <= len(readable) else None,
        private=frozenset(number for number in readable if [f"user:{scope.user}"] == list(known[number].readers)),
        tenant=scope.tenant,
        passages=sum(known[number].passages for number in readable),
    )


@given(
    known=st.dictionaries(st.integers(1, 9), FACTS, max_size=9),
    counts=st.lists(st.tuples(st.integers(1, 9), st.integers(0, 3)), max_size=9),
    later=st.dictionaries(st.integers(10, 14), FACTS, max_size=5),
    scope=SCOPES,
)
def test_classes_that_follow_writes_say_what_looking_at_all_of_them_says(
    known: dict[int, AccessClass], counts: list[tuple[int, int]], later: dict[int, AccessClass], scope: Scope
) -> None:
    """Read at once or learnt write by write: the same are allowed, readable and hidden, with as many passages."""
    classes, now = AccessClasses(known), dict(known)
    for number, passages in counts:
        if number in now:
            now[number] = now[number]._replace(passages=passages)
            classes.update({number: now[number]})
    classes.update(later)
    now |= later
    access = looked_at_one_by_one(scope, now)

    assert access == classes.access_of_scope(scope)
    assert [one.readers for one in now.values()] == [classes.readers(number) for number in now]
    assert classes.has_at_most(scope, sum(len(one.readers) for one in now.values()))
