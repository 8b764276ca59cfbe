"""Id spaces: a private record's id is unique among the private records of its reader, any other's in the tenant.

So a write never fails, or succeeds, because of what only somebody else may read. Where a scope may read several records
of one id, its own comes first and hides the others.
"""

from collections.abc import Sequence

from contexture.types import ReadersScope, Scope

SHARED = "~"
"""The id space of all records that are not private; sorts after every private one."""

_USER = "user:"
_WRITTEN_BY = "\x1f"


def find_id_space(acl: Sequence[str], writer: Scope) -> str:
    """The id space of a record with these readers.

    It is private if its only reader is one user. What a writer stores for somebody else, and may not read, is in a
    space of that writer. What is derived from records, and written for all of their readers, has the ids of its source,
    which are unique in the tenant: an older version that arrives late must meet the newer one.
    """
    if not is_private(acl) or isinstance(writer, ReadersScope):
        return SHARED
    return acl[0] if acl[0] in writer.principals else f"{acl[0]}{_WRITTEN_BY}{writer.user}"


def find_owner(space: str) -> str:
    """The user who may read the records of an id space; empty for the shared one."""
    return "" if space == SHARED else space.partition(_WRITTEN_BY)[0].removeprefix(_USER)


def is_private(acl: Sequence[str]) -> bool:
    """Whether the only reader is one user."""
    return len(set(acl)) == 1 and acl[0].startswith(_USER)
