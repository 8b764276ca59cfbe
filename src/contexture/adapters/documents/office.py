"""Reads DOCX and PPTX files as Markdown pages.

Archives that would unpack to too much, and XML with entities, are refused before they are opened.
"""

import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast
from xml.etree.ElementTree import ParseError
from xml.parsers import expat

import mammoth  # pyright: ignore[reportMissingTypeStubs] - it ships none; `DocxReader` is the only caller
from pptx import Presentation
from pptx.exc import PackageNotFoundError

from contexture.adapters.documents._html import html_to_markdown
from contexture.adapters.documents._text import PAGE_BREAK, build_document, find_title, pages_from_texts
from contexture.documents import ReadDocument, ReadLimits
from contexture.errors import InvalidRequest

_MAX_COMPRESSION_RATIO = 200  # office files compress less than this
_MIN_CHECKED_BYTES = 2**20
_XML_CHUNK_BYTES = 4_096
_HTML_EXTENSIONS = (".html", ".htm", ".xhtml")  # which need not be XML
_XML_EXTENSIONS = (".xml", ".rels", ".opf", ".ncx", ".svg", ".vml", *_HTML_EXTENSIONS)
_BREAK_CLASS = "contexture-page-break"
_BREAK_MARK = "\uf8f0"  # a private-use character: the conversion would drop white space
_STYLE_MAP = "br[type='page'] => hr.contexture-page-break"
_PARSER_ERRORS = (
    zipfile.BadZipFile,
    KeyError,
    ValueError,
    AttributeError,
    TypeError,
    OSError,
    ParseError,
    NotImplementedError,
)


class DocxReader:
    """Implements `DocumentReader` for Word files."""

    extensions = ("docx",)

    def read(self, path: Path, limits: ReadLimits, progress: Callable[[int, int], None]) -> ReadDocument:
        """Read a Word file; pages are split at its page breaks, else at headings and by length."""
        check_archive(path, limits, part="word/document.xml")
        try:
            with path.open("rb") as file:
                html: str = cast("Any", mammoth).convert_to_html(file, style_map=_STYLE_MAP).value
        except _PARSER_ERRORS as failure:
            raise InvalidRequest(f"the Word file is damaged: {failure}") from failure
        text = html_to_markdown(html.replace(f'<hr class="{_BREAK_CLASS}" />', f"<p>{_BREAK_MARK}</p>")).replace(
            _BREAK_MARK, PAGE_BREAK
        )
        return build_document(text, limits, progress)


class PptxReader:
    """Implements `DocumentReader` for presentations; each slide is a page."""

    extensions = ("pptx",)

    def read(self, path: Path, limits: ReadLimits, progress: Callable[[int, int], None]) -> ReadDocument:
        """Read the slides in order, with their notes."""
        check_archive(path, limits, part="ppt/presentation.xml")
        try:
            with path.open("rb") as file:
                show: Any = Presentation(file)
                slides = list(_render_slides(show))
        except (PackageNotFoundError, *_PARSER_ERRORS) as failure:
            raise InvalidRequest(f"the presentation is damaged: {failure}") from failure
        if not slides:
            raise InvalidRequest("the presentation has no slides")
        return build_presentation(slides, limits, progress)


def build_presentation(slides: list[str], limits: ReadLimits, progress: Callable[[int, int], None]) -> ReadDocument:
    """Document with one page per slide; raises `InvalidRequest` for too many slides."""
    if len(slides) > limits.pages:
        raise InvalidRequest(f"the presentation has {len(slides)} slides; the limit is {limits.pages}")
    progress(len(slides), len(slides))
    return ReadDocument(pages=pages_from_texts(slides), title=find_title(slides[0]))


def check_archive(path: Path, limits: ReadLimits, *, part: str) -> None:
    """Raise `InvalidRequest` for an archive that is encrypted, unpacks to too much, or lacks the office file `part`."""
    try:
        with zipfile.ZipFile(path) as package:
            entries = package.infolist()
            names = {entry.filename for entry in entries}
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as failure:
        raise InvalidRequest(f"the file is damaged or protected by a password: {failure}") from failure
    unpacked = sum(entry.file_size for entry in entries)
    if unpacked > limits.unpacked_bytes:
        raise InvalidRequest(f"it unpacks to {unpacked} bytes; the limit is {limits.unpacked_bytes}")
    if any(
        entry.file_size > max(_MAX_COMPRESSION_RATIO * entry.compress_size, _MIN_CHECKED_BYTES) for entry in entries
    ):
        raise InvalidRequest("its compression ratio is too high for an office file")
    if any(entry.flag_bits & 1 for entry in entries):
        raise InvalidRequest("the file is protected by a password")
    if part not in names:
        raise InvalidRequest(f"it is not an office file of this type: {part} is missing")
    with zipfile.ZipFile(path) as package:
        for entry in entries:
            if entry.filename.lower().endswith(_XML_EXTENSIONS):
                _refuse_entities(package, entry)


def _refuse_entities(package: zipfile.ZipFile, entry: zipfile.ZipInfo) -> None:
    """Raise `InvalidRequest` for an XML part that declares entities: a few of them can expand to gigabytes.

    Only what comes before the first element is parsed, because declarations can be nowhere else.
    """
    parser = expat.ParserCreate()
    begun = False

    def refuse(*_declaration: object) -> None:
        raise InvalidRequest(f"its part {entry.filename!r} declares XML entities, which no office file needs")

    def begin(*_element: object) -> None:
        nonlocal begun
        begun = True

    parser.EntityDeclHandler = refuse
    parser.StartElementHandler = begin
    try:
        with package.open(entry) as file:
            while not begun and (chunk := file.read(_XML_CHUNK_BYTES)):
                parser.Parse(chunk)
    except (expat.ExpatError, ValueError, LookupError) as failure:  # also an encoding that the parser does not know
        if not begun and not entry.filename.lower().endswith(_HTML_EXTENSIONS):
            raise InvalidRequest(f"its part {entry.filename!r} is damaged: {failure}") from failure
    except (zipfile.BadZipFile, zlib.error, OSError, NotImplementedError) as failure:
        raise InvalidRequest(f"its part {entry.filename!r} is damaged: {failure}") from failure


def _render_slides(show: Any) -> Iterator[str]:
    for slide in show.slides:
        yield slide_to_markdown(slide)


_MAX_GROUP_DEPTH = 8


def slide_to_markdown(slide: Any) -> str:
    """Convert a slide to Markdown: title, shapes from top to bottom, speaker notes."""
    title: Any = slide.shapes.title
    head = " ".join(title.text_frame.text.split()) if title is not None else ""
    blocks = [f"# {head}"] if head else []
    shapes = sorted(_flatten_shapes(slide.shapes, 0), key=lambda shape: (shape.top or 0, shape.left or 0))
    for shape in shapes:
        if title is None or shape.shape_id != title.shape_id:
            blocks += _shape_to_blocks(shape)
    if slide.has_notes_slide and slide.notes_slide.notes_text_frame is not None:
        notes = slide.notes_slide.notes_text_frame.text.strip()
        blocks += [f"Notes: {notes}"] if notes else []
    return "\n\n".join(block for block in blocks if block.strip())


def _flatten_shapes(shapes: Any, depth: int) -> Iterator[Any]:
    for shape in shapes:
        if hasattr(shape, "shapes") and depth < _MAX_GROUP_DEPTH:
            yield from _flatten_shapes(shape.shapes, depth + 1)
        else:
            yield shape


def _shape_to_blocks(shape: Any) -> list[str]:
    if getattr(shape, "has_table", False):
        return [_table_to_markdown(shape.table)]
    if getattr(shape, "has_chart", False):
        return [_chart_to_markdown(shape.chart)]
    if getattr(shape, "has_text_frame", False):
        return [_text_to_markdown(shape.text_frame)]
    name = str(getattr(shape, "name", ""))
    return [f"![{name}](picture)"] if hasattr(shape, "image") else []


def _text_to_markdown(frame: Any) -> str:
    lines = [(paragraph.level, " ".join(paragraph.text.split())) for paragraph in frame.paragraphs]
    lines = [(level, text) for level, text in lines if text]
    if len(lines) == 1:
        return lines[0][1]
    return "\n".join(f"{'  ' * level}- {text}" for level, text in lines)


def _table_to_markdown(table: Any) -> str:
    rows = [[" ".join(cell.text.split()).replace("|", "\\|") for cell in row.cells] for row in table.rows]
    return _format_table(rows)


def _chart_to_markdown(chart: Any) -> str:
    """Convert a chart to a table of its values."""
    plot = chart.plots[0]
    series = list(plot.series)
    head = ["", *(str(each.name) for each in series)]
    rows = [
        [str(label), *(_format_number(each.values[at]) for each in series)] for at, label in enumerate(plot.categories)
    ]
    title = chart.chart_title.text_frame.text.strip() if chart.has_title and chart.chart_title.has_text_frame else ""
    return "\n\n".join(part for part in (title, _format_table([head, *rows])) if part)


def _format_number(value: float | None) -> str:
    return "" if value is None else f"{value:.12g}"


def _format_table(rows: list[list[str]]) -> str:
    if not rows:
        return ""
    head, *rest = (f"| {' | '.join(row)} |" for row in rows)
    return "\n".join([head, f"|{' --- |' * len(rows[0])}", *rest])
