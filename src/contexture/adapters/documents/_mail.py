"""Reads e-mail messages (EML, MSG): headers, text, quoted replies apart, and attachments through the other readers."""

import email
import email.policy
import mimetypes
import re
import struct
from collections.abc import Callable, Iterator
from dataclasses import replace
from email.message import EmailMessage, MIMEPart
from importlib import import_module
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

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
_MAX_DEPTH = 4  # of messages inside messages
_FIRST_YEAR = 1971  # an earlier date is that of an unset clock
_OUTLOOK_ERRORS = (ArithmeticError, AssertionError, AttributeError, LookupError, OSError, ValueError, struct.error)


class EmlReader:
    """Implements `DocumentReader` for e-mail messages."""

    extensions = ("eml",)

    def read(self, path: Path, limits: ReadLimits, progress: Callable[[int, int], None]) -> ReadDocument:
        """Read the message, then each attachment that can be read; others are named with the reason."""
        return _read_message(_parse_message(path.read_bytes()), limits, progress)


class MsgReader:
    """Implements `DocumentReader` for messages saved by Outlook."""

    extensions = ("msg",)

    def read(self, path: Path, limits: ReadLimits, progress: Callable[[int, int], None]) -> ReadDocument:
        """Read the message, then each attachment that can be read; others are named with the reason."""
        return _read_message(_parse_outlook_message(path.read_bytes()), limits, progress)


def _parse_message(data: bytes) -> EmailMessage:
    return email.message_from_bytes(data, policy=email.policy.default)


def _parse_outlook_message(data: bytes) -> EmailMessage:
    """The message as `EmailMessage`; an attached message of Outlook becomes an attachment without content."""
    oxmsg: Any = import_module("oxmsg")  # its types are incomplete
    message = EmailMessage()
    try:
        found: Any = oxmsg.Message.load(data)
        headers: dict[str, str] = {name.lower(): value for name, value in found.message_headers.items()}
        names = (f"{each.name} <{each.email_address}>" for each in found.recipients)
        sent = found.sent_date if found.sent_date and found.sent_date.year >= _FIRST_YEAR else ""
        message["Subject"] = " ".join(found.subject.split())
        message["From"] = " ".join((found.sender or "").split())
        message["To"] = " ".join((headers.get("to") or ", ".join(names)).split())
        message["Cc"] = " ".join(headers.get("cc", "").split())
        message["Date"] = headers.get("date") or sent
        if (found.body or "").strip():
            message.set_content(found.body)
        else:
            message.set_content(found.html_body or "", subtype="html")
        for part in found.attachments:
            content = (part.file_bytes if part.attached_by_value else None) or b""
            message.add_attachment(content, "application", "octet-stream", filename=part.file_name or "attachment")
    except _OUTLOOK_ERRORS as failure:
        raise InvalidRequest(f"the message is damaged: {failure}") from failure
    return message


def _read_message(
    message: EmailMessage, limits: ReadLimits, progress: Callable[[int, int], None], depth: int = 1
) -> ReadDocument:
    subject = " ".join(str(message["subject"] or "").split())
    read = build_document(_render_message(message, subject), limits, progress, subject)
    pages, bad = list(read.pages), list[BadPage]()
    for name, part in islice(_list_attachments(message), _MAX_ATTACHMENTS):
        try:
            attached = _read_attachment(name, part, limits, depth)
        except InvalidRequest as refusal:
            bad.append(BadPage(number=len(pages), reason=f"the attachment {name!r} cannot be read: {refusal}"))
            continue
        bad += (replace(each, number=each.number + len(pages)) for each in attached.bad)
        pages += [_place_page(page, name, len(pages)) for page in attached.pages]
        if len(pages) > limits.pages:
            raise InvalidRequest(f"the message has more than {limits.pages} pages with its attachments")
    return ReadDocument(pages=tuple(pages), bad=tuple(bad), title=subject)


def _place_page(page: Page, name: str, before: int) -> Page:
    """The page of an attachment behind `before` other pages, in a section with the attachment's name."""
    path = f"{name} > {page.section_path}" if page.section_path else name
    return replace(page, number=page.number + before, section_path=path, parent_heading=page.parent_heading or name)


def _render_message(message: EmailMessage, subject: str) -> str:
    heads = [f"{name}: {value}" for name in _HEADERS if (value := " ".join(str(message[name] or "").split()))]
    own, quoted = split_quoted_reply(_find_text(message))
    blocks = [f"# {subject}" if subject else "", "\n".join(heads), own]
    if quoted:
        blocks += ["## Quoted reply", quoted]
    return "\n\n".join(block for block in blocks if block.strip()).replace(PAGE_BREAK, "\n")


def _find_text(message: EmailMessage) -> str:
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


def _list_attachments(message: EmailMessage) -> Iterator[tuple[str, MIMEPart]]:
    """Parts of a message beside its text, with their names; groups of parts are opened."""
    lone = message.get_content_maintype() not in {"text", "multipart"}
    waiting: list[MIMEPart] = [message] if lone else list(message.iter_attachments())
    while waiting:
        part = waiting.pop(0)
        if part.get_content_maintype() == "multipart":
            waiting[:0] = list(part.iter_parts())
        elif part.get_filename() or part.is_multipart() or part.get_payload(decode=True):
            yield Path(part.get_filename() or f"attachment{_guess_extension(part)}").name, part


def _guess_extension(part: MIMEPart) -> str:
    if part.get_content_type() == "message/rfc822":
        return ".eml"
    return mimetypes.guess_extension(part.get_content_type()) or (
        ".txt" if part.get_content_maintype() == "text" else ""
    )


def _read_attachment(name: str, part: MIMEPart, limits: ReadLimits, depth: int) -> ReadDocument:
    """Read an attached file or message; raises `InvalidRequest` if it cannot be read."""
    from contexture.adapters.documents.file_types import read_document  # imports this reader by name

    payload = part.get_payload(decode=True)
    content = payload if isinstance(payload, bytes) else b""
    message: EmailMessage | None = None
    if part.get_content_type() == "message/rfc822" and part.is_multipart():
        message = cast("list[EmailMessage]", part.get_payload())[0]
    elif not content.strip():
        raise InvalidRequest("it has no content")
    elif name.lower().endswith(".eml"):
        message = _parse_message(content)
    elif name.lower().endswith(".msg"):
        message = _parse_outlook_message(content)
    if message is not None:
        if depth >= _MAX_DEPTH:
            raise InvalidRequest(f"it is inside {depth} other messages")
        return _read_message(message, limits, lambda _done, _total: None, depth + 1)
    with TemporaryDirectory(prefix="contexture-") as folder:
        path = Path(folder) / "attachment"
        path.write_bytes(content)
        return read_document(path, name, limits, lambda _done, _total: None)
