"""What a page store refuses before it writes anything."""

from __future__ import annotations

import re

from contexture.errors import InvalidRequest
from contexture.pages.values import Document
from contexture.retrieval.prepare import valid

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_PRINCIPAL = re.compile(r"public|(user|group):.+", re.DOTALL)


def check(document: Document) -> None:
    """Refuse a document that could not be found, read or removed again."""
    problem = _problem(document)
    if problem:
        raise InvalidRequest(f"document {document.doc_id!r}: {problem}")


def _problem(document: Document) -> str:
    if not _ID.fullmatch(document.doc_id):
        return "`doc_id` must be up to 64 letters, digits, '_' and '-'"
    if not document.filename.strip() or re.search(r"[/\\\0]", document.filename) or document.filename in {".", ".."}:
        return f"`filename` must be the name of a file without a folder, not {document.filename!r}"
    numbers = [page.number for page in document.pages]
    if not numbers:
        return "it has no pages"
    if min(numbers) < 1 or sorted(set(numbers)) != numbers:
        return "its pages must be numbered from 1 upwards, each number once"
    return _reader_problem(document.readers)


def _reader_problem(readers: tuple[str, ...]) -> str:
    strange = next((name for name in readers if not (_PRINCIPAL.fullmatch(name) and valid(name))), None)
    if strange is not None:
        return f"`readers` may hold 'public', 'user:NAME' and 'group:NAME', not {strange!r}"
    return "" if readers else "`readers` is empty, so that nobody could read it"
