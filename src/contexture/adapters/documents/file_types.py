"""Detects the type of a file from its extension and magic bytes, and reads it with the matching `DocumentReader`.

Readers are imported lazily, by module path, when the first file of their type arrives.
"""

import zipfile
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

from contexture.documents import DocumentReader, ReadDocument, ReadLimits
from contexture.errors import InvalidRequest, explain_missing_module

_READERS = {
    "pdf": ("contexture.adapters.documents.pdf.reader", "PdfReader"),
    "docx": ("contexture.adapters.documents.office", "DocxReader"),
    "pptx": ("contexture.adapters.documents.office", "PptxReader"),
    "xlsx": ("contexture.adapters.documents._packages", "XlsxReader"),
    "csv": ("contexture.adapters.documents._packages", "CsvReader"),
    "epub": ("contexture.adapters.documents._packages", "EpubReader"),
    "odt": ("contexture.adapters.documents._packages", "OdtReader"),
    "eml": ("contexture.adapters.documents._mail", "EmlReader"),
    "msg": ("contexture.adapters.documents._mail", "MsgReader"),
    "html": ("contexture.adapters.documents._html", "HtmlReader"),
    "text": ("contexture.adapters.documents._text", "TextReader"),
    "image": ("contexture.adapters.documents._images", "ImageReader"),
}
_KIND_BY_EXTENSION = {
    "pdf": "pdf", "docx": "docx", "pptx": "pptx", "xlsx": "xlsx", "csv": "csv", "epub": "epub", "odt": "odt",
    "eml": "eml", "msg": "msg",
    "html": "html", "htm": "html", "xhtml": "html",
    "md": "text", "markdown": "text", "txt": "text", "text": "text", "rst": "text",
    "png": "image", "jpg": "image", "jpeg": "image", "tif": "image", "tiff": "image", "webp": "image", "bmp": "image",
}  # fmt: skip
_BMP_MAGIC = b"BM"
_COMPOUND_FILE = "an old or protected office file"
_MAGIC = (
    (b"%PDF-", "pdf"),
    (b"\x89PNG\r\n\x1a\n", "image"),
    (b"\xff\xd8\xff", "image"),
    (b"II*\0", "image"),
    (b"MM\0*", "image"),
    (_BMP_MAGIC, "image"),
    (b"PK\x03\x04", "zip"),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", _COMPOUND_FILE),
)
_SNIFF_BYTES = 1_024
_TEXT_KINDS = frozenset({"text", "html", "eml", "csv"})
_BINARY_KINDS = frozenset({"pdf", "docx", "pptx", "xlsx", "epub", "odt", "msg", "image"})
_PACKAGE_PARTS = {
    "word/document.xml": "docx", "ppt/presentation.xml": "pptx", "xl/workbook.xml": "xlsx",
    "META-INF/container.xml": "epub", "content.xml": "odt",
}  # fmt: skip

EXTENSIONS = frozenset(_KIND_BY_EXTENSION)
"""Extensions of supported files, lower case, without the dot."""

TEXT_EXTENSIONS = frozenset(name for name, kind in _KIND_BY_EXTENSION.items() if kind == "text")
"""Extensions of files that are plain text or Markdown."""


def file_extension(name: str) -> str:
    """Extension of a file name, lower case, without the dot."""
    return Path(name).suffix.lower().removeprefix(".")


def read_document(path: Path, name: str, limits: ReadLimits, progress: Callable[[int, int], None]) -> ReadDocument:
    """Pages of the file at `path`; raises `InvalidRequest` for an unsupported, mislabelled, empty or too large file.

    `name` is the original file name.
    """
    try:
        size = path.stat().st_size
        if size > limits.bytes:
            raise InvalidRequest(f"it has {size} bytes; the limit is {limits.bytes}")
        if not size:
            raise InvalidRequest("it is empty")
        return _load_reader(_detect_kind(path, name)).read(path, limits, progress)
    except OSError as failure:
        raise InvalidRequest(f"cannot be read: {failure.strerror}") from failure


def _detect_kind(path: Path, name: str) -> str:
    said = _KIND_BY_EXTENSION.get(file_extension(name))
    if said is None:
        raise InvalidRequest(f"files with the extension {Path(name).suffix!r} are not supported")
    with path.open("rb") as file:
        head = file.read(_SNIFF_BYTES)
    found = _sniff_kind(head, path, said)
    if found not in {"", said}:
        raise InvalidRequest(f"its extension is {Path(name).suffix} but it is {_describe_kind(found)}")
    if not found and said in _BINARY_KINDS:
        raise InvalidRequest(f"its content is not what {Path(name).suffix} says: it starts with {head[:8]!r}")
    return said


def _sniff_kind(head: bytes, path: Path, said: str) -> str:
    """File kind by magic bytes, empty if unknown; plain text may start with `BM` or mention `%PDF-`."""
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "image"
    found = next((kind for magic, kind in _MAGIC if head.startswith(magic)), "")
    if found == "zip":
        return _detect_archive_kind(path)
    if found == _COMPOUND_FILE and said == "msg":
        return said
    if said in _TEXT_KINDS:
        return "" if head.startswith(_BMP_MAGIC) and b"\0" not in head else found
    return found or ("pdf" if b"%PDF-" in head else "")


def _detect_archive_kind(path: Path) -> str:
    try:
        with zipfile.ZipFile(path) as package:
            names = set(package.namelist())
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as failure:
        raise InvalidRequest(f"it is a damaged or truncated package: {failure}") from failure
    return next((kind for part, kind in _PACKAGE_PARTS.items() if part in names), "a ZIP archive")


def _describe_kind(kind: str) -> str:
    known = {
        "pdf": "a PDF", "docx": "a Word file", "pptx": "a presentation", "image": "a picture", "xlsx": "a workbook",
        "epub": "an electronic book", "odt": "an OpenDocument text",
    }  # fmt: skip
    return known.get(kind, kind)


def _load_reader(kind: str) -> DocumentReader:
    """Reader for a file kind; its libraries are imported on first use."""
    module, name = _READERS[kind]
    try:
        return getattr(import_module(module), name)()
    except ImportError as missing:
        raise InvalidRequest(explain_missing_module(missing)) from missing
