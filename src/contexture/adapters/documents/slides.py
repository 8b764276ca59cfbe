"""One slide as Markdown: title, texts from top to bottom, tables, and the speaker's notes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

_DEEPEST = 8


def slide_markdown(slide: Any) -> str:
    """The slide in the order in which its shapes stand."""
    title: Any = slide.shapes.title
    head = " ".join(title.text_frame.text.split()) if title is not None else ""
    blocks = [f"# {head}"] if head else []
    shapes = sorted(_flat(slide.shapes, 0), key=lambda shape: (shape.top or 0, shape.left or 0))
    for shape in shapes:
        if title is None or shape.shape_id != title.shape_id:
            blocks += _blocks(shape)
    if slide.has_notes_slide and slide.notes_slide.notes_text_frame is not None:
        notes = slide.notes_slide.notes_text_frame.text.strip()
        blocks += [f"Notes: {notes}"] if notes else []
    return "\n\n".join(block for block in blocks if block.strip())


def _flat(shapes: Any, depth: int) -> Iterator[Any]:
    for shape in shapes:
        if hasattr(shape, "shapes") and depth < _DEEPEST:
            yield from _flat(shape.shapes, depth + 1)
        else:
            yield shape


def _blocks(shape: Any) -> list[str]:
    if getattr(shape, "has_table", False):
        return [_table(shape.table)]
    if getattr(shape, "has_chart", False):
        return [_chart(shape.chart)]
    if getattr(shape, "has_text_frame", False):
        return [_texts(shape.text_frame)]
    name = str(getattr(shape, "name", ""))
    return [f"![{name}](picture)"] if hasattr(shape, "image") else []


def _texts(frame: Any) -> str:
    lines = [(paragraph.level, " ".join(paragraph.text.split())) for paragraph in frame.paragraphs]
    lines = [(level, text) for level, text in lines if text]
    if len(lines) == 1:
        return lines[0][1]
    return "\n".join(f"{'  ' * level}- {text}" for level, text in lines)


def _table(table: Any) -> str:
    rows = [[" ".join(cell.text.split()).replace("|", "\\|") for cell in row.cells] for row in table.rows]
    return _markdown(rows)


def _chart(chart: Any) -> str:
    """A chart as the table of its numbers."""
    plot = chart.plots[0]
    series = list(plot.series)
    head = ["", *(str(each.name) for each in series)]
    rows = [[str(label), *(_number(each.values[at]) for each in series)] for at, label in enumerate(plot.categories)]
    title = chart.chart_title.text_frame.text.strip() if chart.has_title and chart.chart_title.has_text_frame else ""
    return "\n\n".join(part for part in (title, _markdown([head, *rows])) if part)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.12g}"


def _markdown(rows: list[list[str]]) -> str:
    if not rows:
        return ""
    head, *rest = (f"| {' | '.join(row)} |" for row in rows)
    return "\n".join([head, f"|{' --- |' * len(rows[0])}", *rest])
