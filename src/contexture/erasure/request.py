"""Requests to forget."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated

from msgspec import Meta

from contexture.errors import InvalidRequest
from contexture.json_objects import parse_object
from contexture.text.terms import extract_terms
from contexture.types import Json


@dataclass(frozen=True, kw_only=True, slots=True)
class ForgetRequest:
    """What to forget: one of a user, a session, records, a subject, or the trash of the workspace.

    ForgetRequest(session_id="s-1")                                   # the session, its memories and its builds
    ForgetRequest(ids=("pump",), collection="documents")              # records, and every copy of their texts
    ForgetRequest(matching="my old address", preview=True)            # only show what would be forgotten
    """

    user_id: Annotated[
        str, Meta(description="The user to forget: sessions, memories and everything that nobody else may read.")
    ] = ""
    session_id: Annotated[str, Meta(description="A session of the user.", examples=["s-1"])] = ""
    event_ids: Annotated[tuple[str, ...], Meta(description="Only these events of the session.")] = ()
    ids: Annotated[tuple[str, ...], Meta(description="Records, memories, articles, documents or blocks.")] = ()
    collection: Annotated[
        str,
        Meta(description="Where the ids are: a collection, `memories`, `articles`, `pages` or `blocks`."),
    ] = ""
    matching: Annotated[str, Meta(description="A subject: what the user said about it is forgotten.")] = ""
    trash: Annotated[bool, Meta(description="Everything in the trash of the workspace.")] = False
    preview: Annotated[bool, Meta(description="Only say what would be forgotten.")] = False

    def __post_init__(self) -> None:
        subjects = [bool(self.user_id), bool(self.session_id), bool(self.ids), bool(self.matching.strip()), self.trash]
        if sum(subjects) != 1:
            raise InvalidRequest("name one subject to forget: a user, a session, ids, a matching text, or the trash")
        if self.event_ids and not self.session_id:
            raise InvalidRequest("`event_ids` are events of a session; name it with `session_id`")
        if self.collection and not self.ids:
            raise InvalidRequest("`collection` says where `ids` are; name them too")
        if self.matching and not extract_terms(self.matching):
            raise InvalidRequest("`matching` has no word by which something could be found")

    @property
    def subject(self) -> str:
        """The kind of subject: `user`, `session`, `events`, `records`, `matching` or `trash`."""
        if self.session_id:
            return "events" if self.event_ids else "session"
        named = {"user": self.user_id, "records": self.ids, "matching": self.matching}
        return next((kind for kind, value in named.items() if value), "trash")

    def with_collection(self, default: str) -> ForgetRequest:
        """The request with `default` as the collection of its ids, if it names none."""
        return replace(self, collection=default) if self.ids and not self.collection else self

    def describe(self) -> dict[str, Json]:
        """The input of the policy for the action `forget`, the same wherever the request comes from."""
        return {
            "subject": self.subject,
            "session_id": self.session_id,
            "collection": self.collection,
            "records": len(self.ids),
            "preview": self.preview,
        }


def parse_forget(body: Mapping[str, object]) -> ForgetRequest:
    """Parse a request to forget; raises `InvalidRequest` naming the invalid fields."""
    return parse_object(ForgetRequest, body, what="a request to forget")
