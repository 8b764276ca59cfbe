"""Reads e-mail messages (EML): headers, text, quoted replies apart, and attachments through the other readers."""

from __future__ import annotations

import email
import email.policy
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from email.message import EmailMessage
from pathlib import Path
from tempfile import TemporaryDirectory

from contexture.adapters.documents._html import html_to_markdown
from contexture.adapters.documents._text import PAGE_BREAK, build_document
from contexture.documents import BadPage, Page, ReadDocument, ReadLimits
from contexture.errors import InvalidRequest

_HEADERS = ("From", "To", "Cc", "Date")
_QUOTED_LINE = re.compile(r"\s*>")
_QUOTE_INTRODUCTION = re.compile(
    r"^(?:On .{5,200} wrote:|.{5,200} писал(?:\(а\)|а)?:"
    r"|-{3,}\s*(?:Original Message|Forwarded message|Исходное сообщение).*)$"
)
_MAX_ATTACHMENTS = 50

ReadFile = Callable[[Path, str, ReadLimits, Callable[[int, int], None]], ReadDocument]


class EmlReader:
    """Implements `DocumentReader` for e-mail messages."""

    extensions = ("eml",)

    def read(self, path: Path, limits: ReadLimits, progress: Callable[[int, int], None]) -> ReadDocument:
        """Read the message, then each attachment that can be read; others are named with the reason."""
        from contexture.adapters.documents.file_types import read_document  # imports this reader by name

        message = email.message_from_bytes(path.read_bytes(), policy=email.policy.default)
        subject = " ".join(str(message["subject"] or "").split())
        read = build_document(_render_message(message, subject), limits, progress, subject)
        pages, bad = list(read.pages), list[BadPage]()
        for name, content in _list_attachments(message):
            try:
                for page in _read_attachment(name, content, limits, read_document):
                    pages.append(replace(page, number=len(pages) + 1))
            except InvalidRequest as refusal:
                bad.append(BadPage(number=len(pages), reason=f"the attachment {name!r} cannot be read: {refusal}"))
            if len(pages) > limits.pages:
                raise InvalidRequest(f"the message has more than {limits.pages} pages with its attachments")
        return ReadDocument(pages=tuple(pages), bad=tuple(bad), title=subject)


def _render_message(message: EmailMessage, subject: str) -> str:
    heads = [f"{name}: {' '.join(str(message[name]).split())}" for name in _HEADERS if message[name]]
    own, quoted = split_quoted_reply(_message_text(message))
    blocks = [f"# {subject}" if subject else "", "\n".join(heads), own]
    if quoted:
        blocks += ["## Quoted reply", quoted]
    return "\n\n".join(block for block in blocks if block.strip()).replace(PAGE_BREAK, "\n")


def _message_text(message: EmailMessage) -> str:
    part = message.get_body(preferencelist=("plain", "html"))
    if part is None:
        return ""
    try:
        content = str(part.get_content())
    except (LookupError, KeyError):  # an unknown character set or type
        payload = part.get_payload(decode=True)
        content = payload.decode("utf-8", "replace") if isinstance(payload, bytes) else ""
    return html_to_markdown(content) if part.get_content_type() == "text/html" else content


def split_quoted_reply(text: str) -> tuple[str, str]:
    """The text of a message, and the reply that it quotes, without the marks of quotation."""
    lines = text.replace("\r\n", "\n").split("\n")
    start = next((at for at, line in enumerate(lines) if _QUOTE_INTRODUCTION.match(line.strip())), len(lines))
    own = [line for line in lines[:start] if not _QUOTED_LINE.match(line)]
    quoted = [line for line in lines[:start] if _QUOTED_LINE.match(line)] + lines[start:]
    return "\n".join(own).strip(), "\n".join(re.sub(r"^\s*(?:>\s?)+", "", line) for line in quoted).strip()


def _list_attachments(message: EmailMessage) -> Iterator[tuple[str, bytes]]:
    for at, part in enumerate(message.iter_attachments()):
        if at >= _MAX_ATTACHMENTS:
            return
        payload = part.get_payload(decode=True)
        if isinstance(payload, bytes) and payload:
            yield Path(part.get_filename() or f"attachment-{at + 1}").name, payload


def _read_attachment(name: str, content: bytes, limits: ReadLimits, read: ReadFile) -> tuple[Page, ...]:
    if name.lower().endswith((".eml", ".msg")):
        raise InvalidRequest("messages inside messages are not read")
    with TemporaryDirectory(prefix="contexture-") as folder:
        path = Path(folder) / "attachment"
        path.write_bytes(content)
        return read(path, name, limits, lambda _done, _total: None).pages
