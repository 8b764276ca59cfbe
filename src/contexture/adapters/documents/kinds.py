"""Which reader a file needs: by its name, held against its first bytes."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

from contexture.documents import DocumentReader, ReadDocument, ReadLimits
from contexture.errors import InvalidRequest

_READERS = {
    "pdf": ("contexture.adapters.documents.pdf.reader", "PdfReader"),
    "docx": ("contexture.adapters.documents.office", "DocxReader"),
    "pptx": ("contexture.adapters.documents.office", "PptxReader"),
    "html": ("contexture.adapters.documents.html", "HtmlReader"),
    "text": ("contexture.adapters.documents.texts", "TextReader"),
    "image": ("contexture.adapters.documents.images", "ImageReader"),
}
_KINDS = {
    "pdf": "pdf", "docx": "docx", "pptx": "pptx", "html": "html", "htm": "html", "xhtml": "html",
    "md": "text", "markdown": "text", "txt": "text", "text": "text", "rst": "text",
    "png": "image", "jpg": "image", "jpeg": "image", "tif": "image", "tiff": "image", "webp": "image", "bmp": "image",
}  # fmt: skip
_BITMAP = b"BM"
_MAGIC = (
    (b"%PDF-", "pdf"),
    (b"\x89PNG\r\n\x1a\n", "image"),
    (b"\xff\xd8\xff", "image"),
    (b"II*\0", "image"),
    (b"MM\0*", "image"),
    (_BITMAP, "image"),
    (b"PK\x03\x04", "zip"),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "an old or protected office file"),
)
_HEAD = 1_024
_PLAIN = frozenset({"text", "html"})

EXTENSIONS = frozenset(_KINDS)
"""The endings of files that can be read, lower case, without the dot."""

TEXTS = frozenset(name for name, kind in _KINDS.items() if kind == "text")
"""Those of files that are text as they stand."""


def extension_of(name: str) -> str:
    """The ending of a file's name, lower case, without the dot."""
    return Path(name).suffix.lower().removeprefix(".")


def read(path: Path, name: str, limits: ReadLimits, progress: Callable[[int, int], None]) -> ReadDocument:
    """The pages of a file that is called `name`; what it is not, or more than it may be, is an `InvalidRequest`."""
    try:
        size = path.stat().st_size
        if size > limits.bytes:
            raise InvalidRequest(f"it has {size} bytes: more than {limits.bytes}")
        if not size:
            raise InvalidRequest("it is empty")
        return _reader(_kind(path, name)).read(path, limits, progress)
    except OSError as failure:
        raise InvalidRequest(f"cannot be read: {failure.strerror}") from failure


def _kind(path: Path, name: str) -> str:
    said = _KINDS.get(extension_of(name))
    if said is None:
        raise InvalidRequest(f"files that end in {Path(name).suffix!r} are not read")
    with path.open("rb") as file:
        head = file.read(_HEAD)
    found = _sniffed(head, path, said)
    if found not in {"", said}:
        raise InvalidRequest(f"it is called {Path(name).suffix} but is {_named(found)}")
    if not found and said in {"pdf", "docx", "pptx", "image"}:
        raise InvalidRequest(f"it is called {Path(name).suffix} but is none: its first bytes are {head[:8]!r}")
    return said


def _sniffed(head: bytes, path: Path, said: str) -> str:
    """What the first bytes say; empty where they say nothing. A text may begin with `BM` and speak of `%PDF-`."""
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "image"
    found = next((kind for magic, kind in _MAGIC if head.startswith(magic)), "")
    if found == "zip":
        return _package(path)
    if said in _PLAIN:
        return "" if head.startswith(_BITMAP) and b"\0" not in head else found
    return found or ("pdf" if b"%PDF-" in head else "")


def _package(path: Path) -> str:
    try:
        with zipfile.ZipFile(path) as package:
            names = set(package.namelist())
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as failure:
        raise InvalidRequest(f"it is a damaged or truncated package: {failure}") from failure
    if "word/document.xml" in names:
        return "docx"
    return "pptx" if "ppt/presentation.xml" in names else "a ZIP archive"


def _named(kind: str) -> str:
    return {"pdf": "a PDF", "docx": "a Word file", "pptx": "a presentation", "image": "a picture"}.get(kind, kind)


def _reader(kind: str) -> DocumentReader:
    """The reader of a kind; its libraries are loaded when the first such file comes."""
    module, name = _READERS[kind]
    return getattr(import_module(module), name)()
