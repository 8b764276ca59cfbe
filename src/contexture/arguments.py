"""Reads the arguments of public calls: JSON objects in place of value objects, and records of other libraries."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime
from pathlib import Path
from typing import Any, Protocol, TypeAlias, TypeVar, cast, runtime_checkable

from contexture.answer.chat_types import ChatRequest
from contexture.answer.research import ResearchQuestion, parse_research_question
from contexture.builders.ask.request import AskRequest, parse_ask
from contexture.builders.query.request import QueryRequest, query_from_json
from contexture.builders.turn.request import Turn
from contexture.config import Settings
from contexture.conversation import Memory
from contexture.errors import InvalidRequest
from contexture.filters import check_form, filter_from_json
from contexture.ingestion.records import row_to_record
from contexture.json_objects import parse_object
from contexture.memory_payloads import memory_from_json
from contexture.types import Filter, Record, Scope, content_hash

T = TypeVar("T")


@runtime_checkable
class LangChainDocument(Protocol):
    """A document of LangChain."""

    page_content: str
    metadata: dict[str, Any]


@runtime_checkable
class LlamaIndexNode(Protocol):
    """A node or document of LlamaIndex."""

    metadata: dict[str, Any]

    @property
    def node_id(self) -> str:
        """Its id."""
        ...

    def get_content(self) -> str:
        """Its text."""
        ...


RecordLike: TypeAlias = Record | Mapping[str, Any] | LangChainDocument | LlamaIndexNode
"""What `add` takes as a record: one, a row as in a JSONL file, or a document of LangChain or LlamaIndex."""

MemoryLike: TypeAlias = Memory | Mapping[str, Any] | str
"""What `remember` takes as a memory: one, a dict with its fields, or its text."""

_TEXT_FIELDS = frozenset({"lang", "source", "kind", "session", "date", "time", "timestamp", "created_at"})
_RECORD_ADVICE = "a Record, a dict with id and text, or a document of LangChain or LlamaIndex"


def read_scope(scope: object, default: Scope) -> Scope:
    """Return the scope of a call, from one or from a dict with its fields, or `default` for None.

    Raises `InvalidRequest` for anything else.
    """
    if scope is None:
        return default
    if isinstance(scope, Scope):
        return scope
    if isinstance(scope, Mapping):
        given = cast("Mapping[str, Any]", scope)
        if given.keys() - {"tenant", "user", "groups"} or not given.keys() >= {"tenant", "user"}:
            raise InvalidRequest(f"a scope has tenant, user and groups, not {', '.join(map(str, given)) or 'nothing'}")
        return Scope(tenant=given["tenant"], user=given["user"], groups=read_names(given.get("groups", ())))
    raise InvalidRequest(f"scope must be a contexture.Scope, such as Scope(tenant='acme', user='anna'), not {scope!r}")


def read_filter(where: object) -> Filter | None:
    """Return a filter from one or from its JSON; raises `InvalidRequest` for anything else."""
    if isinstance(where, Mapping):
        return filter_from_json(cast("Mapping[str, Any]", where))
    if where is not None:
        check_form(where)
    return cast("Filter | None", where)


def read_query(request: object, settings: Settings, max_tokens: int | None) -> QueryRequest:
    """Return a request from one, from its JSON, or from a question; what is left out comes from the settings."""
    given: Mapping[str, Any]
    if isinstance(request, QueryRequest):
        return request if max_tokens is None else replace(request, max_tokens=max_tokens)
    if isinstance(request, str):
        given = {"query": request}
    elif isinstance(request, Mapping):
        given = cast("Mapping[str, Any]", request)
    else:
        raise InvalidRequest(f"a query must be a text, a dict or a QueryRequest, not {type(request).__name__}")
    defaults = {"collection": settings.collection, "max_tokens": settings.max_tokens}
    asked = {name: value for name, value in given.items() if value is not None}
    return query_from_json({**defaults, **asked, **({} if max_tokens is None else {"max_tokens": max_tokens})})


def read_turn(turn: object) -> Turn | Mapping[str, Any]:
    """Return a turn from one, from its JSON, or from what the user says."""
    if isinstance(turn, str):
        return Turn(user_message=turn)
    return _require_object(turn, Turn, "a turn")


def read_ask(question: object) -> AskRequest:
    """Return a question over everything from one, from its JSON, or from a text."""
    if isinstance(question, str):
        return AskRequest(query=question)
    found = _require_object(question, AskRequest, "a question")
    return found if isinstance(found, AskRequest) else parse_ask(found, answering=True)


def read_research_question(question: object) -> ResearchQuestion:
    """Return a research question from one, from its JSON, or from a text."""
    if isinstance(question, str):
        return ResearchQuestion(query=question)
    found = _require_object(question, ResearchQuestion, "a research question")
    return found if isinstance(found, ResearchQuestion) else parse_research_question(found, answering=True)


def read_object(request: object, model: type[T], what: str, *, text_field: str) -> T | Mapping[str, Any]:
    """Return a request as it is, or a text as a request of this field alone."""
    return {text_field: request} if isinstance(request, str) else _require_object(request, model, what)


def read_chat(request: object, session_id: str) -> ChatRequest:
    """Return a message from one, from its JSON, or from a text, which is one of the session.

    Raises `InvalidRequest` for anything else.
    """
    if isinstance(request, str):
        return ChatRequest(message=request, session_id=session_id)
    found = _require_object(request, ChatRequest, "a message")
    if isinstance(found, ChatRequest):
        return found
    parsed = parse_object(ChatRequest, found, what="a message")
    return parsed if parsed.session_id else replace(parsed, session_id=session_id)


def read_path(path: object) -> Path:
    """Return a path from one or from a text; raises `InvalidRequest` for anything else."""
    if isinstance(path, str | Path):
        return Path(path)
    raise InvalidRequest(f"a path must be a text or a pathlib.Path, not {type(path).__name__}")


def check_text(query: object) -> None:
    """Raise `InvalidRequest` for a query that is no text."""
    if not isinstance(query, str):
        raise InvalidRequest(f"the query must be a text, not {type(query).__name__}")


def check_time(now: object) -> None:
    """Raise `InvalidRequest` for a time that is neither a `datetime` nor None."""
    if now is not None and not isinstance(now, datetime):
        raise InvalidRequest(f"now must be a datetime, such as datetime(2024, 5, 1, tzinfo=UTC), not {now!r}")


def check_limit(limit: object, most: int | None = None) -> None:
    """Raise `InvalidRequest` for a limit that is no whole number of at least 1, or more than `most`."""
    if isinstance(limit, bool) or not isinstance(limit, int):
        raise InvalidRequest(f"limit must be a whole number, not {limit!r}")
    if limit < 1:
        raise InvalidRequest(f"limit must be at least 1, not {limit}")
    if most is not None and limit > most:
        raise InvalidRequest(f"limit must be at most {most}, not {limit}")


def read_names(given: object) -> tuple[str, ...]:
    """Return names from a list of them or from one."""
    return (given,) if isinstance(given, str) else tuple(cast("Iterable[str]", given))


def read_readers(acl: object) -> tuple[str, ...]:
    """Return readers from a list of them or from one; raises `InvalidRequest` for anything else."""
    if isinstance(acl, str) or isinstance(acl, Iterable):  # noqa: SIM101 - types are narrowed one by one
        return read_names(cast("object", acl))
    raise InvalidRequest(f"acl must be a list of 'user:NAME', 'group:NAME' or 'public', not {type(acl).__name__}")


def read_records(given: object, acl: Sequence[str]) -> list[Record]:
    """Return records from one item or many; `acl` applies to items that name no readers.

    Raises `InvalidRequest` for an item that is no record.
    """
    return [
        _read_record(each, read_readers(acl), at)
        for at, each in enumerate(_list_items(given, (str, Record, Mapping, LangChainDocument, LlamaIndexNode)))
    ]


def read_memories(given: object, *, namespace: str, universe: str) -> list[Memory]:
    """Return memories from one or many texts, dicts or memories; raises `InvalidRequest` for anything else."""
    return [
        _read_memory(each, at, namespace=namespace, universe=universe)
        for at, each in enumerate(_list_items(given, (str, Mapping, Memory)))
    ]


def _read_memory(item: object, at: int, *, namespace: str, universe: str) -> Memory:
    if isinstance(item, Memory):
        return item
    if isinstance(item, str):
        item = {"text": item}
    if not isinstance(item, Mapping):
        raise InvalidRequest(f"memories[{at}] must be a text, a dict or a Memory, not {type(item).__name__}")
    given = cast("Mapping[str, Any]", item)
    if not isinstance(given.get("text"), str):
        raise InvalidRequest(f"memories[{at}] must have a field 'text' that is a string")
    return memory_from_json(given, namespace=namespace, universe=universe)


def _list_items(given: object, single: tuple[type, ...]) -> Iterable[object]:
    """Return one item, or what is no iterable, as a list of it."""
    if isinstance(given, single) or not isinstance(given, Iterable):
        return [given]
    return cast("Iterable[object]", given)


def _read_record(item: object, acl: tuple[str, ...], at: int) -> Record:
    if isinstance(item, Record):
        return item
    if isinstance(item, Mapping):
        row = {name: _to_json(value) for name, value in cast("Mapping[str, Any]", item).items()}
        if isinstance(row.get("acl"), str):
            row["acl"] = [row["acl"]]
    elif isinstance(item, LangChainDocument):
        row = _library_row(getattr(item, "id", None), item.page_content, item.metadata)
    elif isinstance(item, LlamaIndexNode):
        row = _library_row(item.node_id, item.get_content(), item.metadata)
    else:
        raise InvalidRequest(f"records[{at}] must be {_RECORD_ADVICE}, not {type(item).__name__}")
    try:
        return row_to_record(row, acl=acl)[0]
    except InvalidRequest as failure:
        raise InvalidRequest(f"records[{at}]: {failure}") from failure


def _library_row(item_id: object, text: str, metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return the row of a document of another library; its metadata grants no rights and cannot replace its text."""
    fields = {name: _to_json(value) for name, value in metadata.items() if name not in {"id", "text", "acl"}}
    texts = {name: str(fields[name]) for name in _TEXT_FIELDS & fields.keys() if fields[name] is not None}
    title = str(fields.get("title") or fields.get("file_name") or "")
    return {**fields, **texts, "id": str(item_id or content_hash(text)[:32]), "text": text, "title": title}


def _to_json(value: object) -> object:
    """Return a value as JSON has it: lists for tuples and sets, texts for times and for what JSON does not know."""
    if value is None or isinstance(value, str | int | float | bool):
        return value
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Mapping):
        return {str(name): _to_json(part) for name, part in cast("Mapping[object, object]", value).items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_to_json(part) for part in cast("Iterable[object]", value)]
    return str(value)


def _require_object(request: object, model: type[T], what: str) -> T | Mapping[str, Any]:
    if isinstance(request, model):
        return request
    if isinstance(request, Mapping):
        return cast("Mapping[str, Any]", request)
    name = model.__name__
    article = "an" if name[0] in "AEIOU" else "a"
    raise InvalidRequest(f"{what} must be a text, a dict or {article} {name}, not {type(request).__name__}")
