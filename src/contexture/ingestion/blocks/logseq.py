"""Reads a Logseq graph: pages and journals in Markdown or Org, each an outline of blocks."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import unquote

from contexture.ingestion.blocks._markdown import extract_org_dates, parse_task_marker, split_frontmatter
from contexture.ingestion.blocks.draft import BlockDraft, DraftDocument, ImportItems
from contexture.ingestion.blocks.sources import SourceFile, open_folder
from contexture.types import Json
from contexture.workspace import BlockType

SUFFIXES = frozenset({".md", ".markdown", ".org"})
SKIPPED_FOLDERS = frozenset({"logseq", "assets", "draws", "whiteboards"})
"""Folders of a graph that hold settings, backups and images, not pages."""

LIST_ITEM = re.compile(r"^[ \t]*[-*] ", re.MULTILINE)
_JOURNAL = re.compile(r"(\d{4})[_-](\d{2})[_-](\d{2})$")
_ORG_KEYWORD = re.compile(r"#\+(\w+):[ \t]*(.*)$")
_ORDINAL_ENDINGS = {1: "st", 2: "nd", 3: "rd"}
_TEENS = range(11, 14)


def is_logseq(root: Path) -> bool:
    """Whether a folder is a Logseq graph."""
    return (root / "logseq").is_dir() and ((root / "pages").is_dir() or (root / "journals").is_dir())


def read_logseq(root: Path, *, readers: tuple[str, ...] | None = None) -> ImportItems:
    """Yield a document per file; pages are readable by `readers`, or by everyone in the tenant."""
    opened = open_folder(root, SUFFIXES, skip=SKIPPED_FOLDERS)
    yield from opened.problems
    for file in opened.files:
        yield parse_page(file, readers=readers)


def parse_page(file: SourceFile, *, readers: tuple[str, ...] | None = None) -> DraftDocument:
    """Parse a Logseq file as a document."""
    is_org = file.suffix == ".org"
    fields, body, first, _ = ({}, file.text, 1, "") if is_org else split_frontmatter(file.text)
    text = "\n" * (first - 1) + body  # the lines keep their numbers
    outline = parse_org_outline(text) if is_org else parse_markdown_outline(text)
    head, properties = _split_head(outline, org=is_org)
    properties = {**{name.lower(): value for name, value in fields.items()}, **properties}
    title = _page_title(file, properties)
    known = properties.pop("id", "")
    root = BlockDraft(
        type=BlockType.PAGE,
        text=title,
        properties=_page_properties(file, title, properties),
        known=known if isinstance(known, str) else "",
        readers=readers,
        created=_parse_journal_day(file),
        modified=file.modified,
    )
    root.children.extend(draft_head(head, file))
    _add_children(root, outline.items, file)
    return DraftDocument(path=file.path, root=root, bullets=len(LIST_ITEM.findall(file.text)))


def title_from_stem(stem: str) -> str:
    """Return the page name for a file name: `a___b` and `a%2Fb` are `a/b`."""
    return unquote(stem.replace("___", "/"), errors="replace").strip("/ ") or stem


def journal_title(day: datetime) -> str:
    """Return the name of a journal page, such as `May 14th, 2020`."""
    ending = "th" if day.day in _TEENS else _ORDINAL_ENDINGS.get(day.day % 10, "th")
    return f"{_MONTHS[day.month - 1]} {day.day}{ending}, {day.year}"


_MONTHS = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split()  # not dependent on the locale


def _add_children(root: BlockDraft, items: list[OutlineItem], file: SourceFile) -> None:
    """Add the drafts of items and of their descendants; empty bullets without children are left out."""
    waiting = [(root, items)]
    while waiting:
        parent, below = waiting.pop()
        for item in below:
            draft = item_to_draft(item, org=file.suffix == ".org", modified=file.modified)
            if draft.text or draft.properties or item.children:
                parent.children.append(draft)
                waiting.append((draft, item.children))


def _split_head(outline: LogseqOutline, *, org: bool) -> tuple[list[str], dict[str, Json]]:
    """Return the lines before the first block, and the properties in them."""
    if not org:
        return outline.head, split_properties(outline.head)[1]
    lines: list[str] = []
    properties: dict[str, Json] = {}
    for line in outline.head:
        found = _ORG_KEYWORD.match(line)
        if found is not None:
            properties[found[1].lower()] = found[2].strip()
        else:
            lines.append(line)
    return lines, {**properties, **split_properties(lines)[1]}


def _page_title(file: SourceFile, properties: dict[str, Json]) -> str:
    given = properties.pop("title", None)
    if isinstance(given, str) and given:
        return given
    day = _parse_journal_day(file)
    return journal_title(day) if day else title_from_stem(file.stem)


def _page_properties(file: SourceFile, title: str, properties: dict[str, Json]) -> dict[str, Json]:
    given = properties.pop("alias", "")
    day = _parse_journal_day(file)
    also = day.date().isoformat() if day else title_from_stem(file.stem) if title_from_stem(file.stem) != title else ""
    alias = ", ".join(name for name in (given, also) if isinstance(name, str) and name)
    namespace = title.rpartition("/")[0]
    tags = ", ".join(map(_format_tag, split_names(properties.pop("tags", None))))
    made: dict[str, Json] = {"alias": alias, "namespace": namespace, "tags": tags}
    return {**properties, **{name: value for name, value in made.items() if value}}


def _format_tag(name: str) -> str:
    """Return a tag as a link, unless it already is one."""
    if "[[" in name or name.startswith("#"):
        return name
    return f"#{name}" if re.fullmatch(r"[^\W\d_][\w/-]*", name) else f"[[{name}]]"


def _parse_journal_day(file: SourceFile) -> datetime | None:
    found = _JOURNAL.match(file.stem) if file.folder.rpartition("/")[2] == "journals" else None
    try:
        return datetime(int(found[1]), int(found[2]), int(found[3]), tzinfo=UTC) if found else None
    except ValueError:
        return None


_PROPERTY = re.compile(r"[ \t]*([A-Za-zА-яЁё][\w./-]*)::(?:[ \t]+(.*))?$")
_DRAWER = re.compile(r"[ \t]*:([\w./-]+):(?:[ \t]+(.*))?$")
_CODE_FENCE = re.compile(r"\s*(```+|~~~+)[ \t]*([\w+#.-]*)")
_ORG_BLOCK = re.compile(r"#\+BEGIN_(\w+)[ \t]*(\S*)[^\n]*\n(.*?)\n?[ \t]*#\+END_\1[ \t]*$", re.IGNORECASE | re.DOTALL)
_HEADING = re.compile(r"(#{1,6})[ \t]+(.*)", re.DOTALL)
_IMAGE = re.compile(r"!\[[^\]]*\]\([^)]*\)(?:\{[^}]*\})?$")
_EMBED = re.compile(r"\{\{(?:embed|video|youtube|tweet|renderer)\b.*\}\}$", re.DOTALL)
_MACHINE_PROPERTIES = frozenset(
    {"id", "collapsed", "created-at", "updated-at", "created_at", "updated_at", "custom-id", "custom_id"}
)
_KNOWN_PROPERTIES = _MACHINE_PROPERTIES | {"title", "alias", "tags"}
_CALLOUTS = frozenset({"note", "tip", "important", "caution", "warning", "pinned", "example"})
_MILLISECONDS = 1_000


def item_to_draft(item: OutlineItem, *, org: bool, modified: datetime | None) -> BlockDraft:
    """Convert an outline item to a draft; user-written properties also stay in its text, as they may contain links."""
    lines, properties = split_properties(item.lines, drawers=org)
    text = "\n".join(lines).strip("\n")
    known = properties.pop("id", "")
    created, changed = _pop_time(properties, "created"), _pop_time(properties, "updated")
    text, dates = extract_org_dates(text)
    task = parse_task_marker(text)
    if task is not None:
        text, state = task
        kind, shown, extra = BlockType.TODO, text, state
    else:
        kind, shown, extra = _classify(text)
    return BlockDraft(
        type=kind,
        text=shown.strip(),
        properties={**properties, **extra, **dates},
        known=known if isinstance(known, str) else "",
        created=created,
        modified=changed or modified,
        line=item.line,
    )


def draft_head(lines: list[str], file: SourceFile) -> list[BlockDraft]:
    """Convert the text before the outline to drafts, one per paragraph, without the page's properties."""
    found: list[BlockDraft] = []
    for line, part in _split_paragraphs(lines):
        lines = split_properties(part, drawers=file.suffix == ".org", all_out=True)[0]
        text = "\n".join(lines).strip()
        if text:
            kind, shown, extra = _classify(text, plain=BlockType.PARAGRAPH)
            found.append(BlockDraft(type=kind, text=shown, properties=extra, modified=file.modified, line=line))
    return found


def split_properties(
    lines: list[str], *, drawers: bool = False, all_out: bool = False
) -> tuple[list[str], dict[str, Json]]:
    """Split lines into text and properties: drawers and internal properties are removed, with `all_out` all of them."""
    kept: list[str] = []
    found: dict[str, Json] = {}
    fenced = drawer = ""
    for line in lines:
        stripped = line.strip()
        if not fenced and (drawer or stripped in {":PROPERTIES:", ":LOGBOOK:"}):
            drawer = _read_drawer_line(stripped, drawer, found)
            continue
        fence = _CODE_FENCE.match(line)
        if fence and (not fenced or stripped == fenced):
            fenced = "" if fenced else fence[1]
        match = None if fenced or drawers else _PROPERTY.match(line)
        if match is not None:
            found[_property_name(match[1])] = (match[2] or "").strip()
        if match is None or not (all_out or match[1].lower() in _MACHINE_PROPERTIES):
            kept.append(line)
    return kept, found


def split_names(value: Json) -> list[str]:
    """Split a value such as `one, [[two]]` into names; commas inside brackets do not separate."""
    parts = re.split(r",(?![^\[]*\]\])", value) if isinstance(value, str) else []
    return [name for part in parts if (name := part.strip())]


def _read_drawer_line(line: str, drawer: str, found: dict[str, Json]) -> str:
    """Parse one line of a drawer; returns the drawer that the next line is in."""
    if line == ":END:":
        return ""
    if not drawer:
        return line
    if drawer == ":LOGBOOK:":
        found["logbook"] = f"{found['logbook']}\n{line}" if "logbook" in found else line
    elif match := _DRAWER.match(line):
        found[_property_name(match[1])] = (match[2] or "").strip()
    return drawer


def _property_name(name: str) -> str:
    """Return a property's name as written, or our own name for it."""
    return name.lower() if name.lower() in _KNOWN_PROPERTIES else name


def _classify(text: str, *, plain: BlockType = BlockType.BULLETED) -> tuple[BlockType, str, dict[str, Json]]:
    """Return the block type of a text, the text without its markup, and the properties that the markup sets."""
    if code := _parse_code_block(text):
        return BlockType.CODE, code[1], {"language": code[0]} if code[0] else {}
    if quoted := _ORG_BLOCK.fullmatch(text):
        return _classify_org_block(quoted)
    if heading := _HEADING.match(text):
        return BlockType.HEADING, heading[2], {"level": len(heading[1])}
    if text.startswith("|") and all(line.lstrip().startswith("|") for line in text.split("\n")):
        return BlockType.TABLE, text, {}
    if text.startswith(">"):
        return BlockType.QUOTE, "\n".join(line.removeprefix(">").removeprefix(" ") for line in text.split("\n")), {}
    return _classify_line(text, plain)


def _classify_line(text: str, plain: BlockType) -> tuple[BlockType, str, dict[str, Json]]:
    if _IMAGE.fullmatch(text):
        return BlockType.IMAGE, text, {}
    if _EMBED.fullmatch(text):
        return BlockType.EMBED, text, {}
    if text in {"---", "***", "___"}:
        return BlockType.DIVIDER, "", {"rule": text}
    return plain, text, {}


def _classify_org_block(found: re.Match[str]) -> tuple[BlockType, str, dict[str, Json]]:
    name, argument, inside = found[1].lower(), found[2], found[3]
    if name == "quote":
        return BlockType.QUOTE, inside, {}
    if name in _CALLOUTS:
        return BlockType.CALLOUT, inside, {"kind": name}
    if name in {"src", "example", "query", "export"}:
        return BlockType.CODE, inside, {"language": argument or name}
    return BlockType.BULLETED, found[0], {}


def _parse_code_block(text: str) -> tuple[str, str] | None:
    """Return language and code of a block that consists of a single fence."""
    opened = _CODE_FENCE.match(text)
    lines = text.split("\n")
    if opened is None or len(lines) < 2 or lines[-1].strip() != opened[1]:  # noqa: PLR2004 - an opening and a closing line
        return None
    if any(line.strip() == opened[1] for line in lines[1:-1]):
        return None
    return opened[2], "\n".join(lines[1:-1])


def _pop_time(properties: dict[str, Json], what: str) -> datetime | None:
    """Remove a Logseq timestamp in milliseconds from the properties and return it."""
    given = [properties.pop(name, None) for name in (f"{what}-at", f"{what}_at")]
    match = next((each for each in given if isinstance(each, str) and each.isdigit()), None)
    try:
        return None if match is None else datetime.fromtimestamp(int(match) / _MILLISECONDS, UTC)
    except (ValueError, OverflowError, OSError):
        return None


def _split_paragraphs(lines: list[str]) -> list[tuple[int, list[str]]]:
    """Return runs of lines between empty ones, each with its first line number; fences are not split."""
    found: list[tuple[int, list[str]]] = []
    fenced = ""
    open_run = False
    for number, line in enumerate(lines, start=1):
        if not line.strip() and not fenced:
            open_run = False
            continue
        if not open_run:
            found.append((number, []))
            open_run = True
        found[-1][1].append(line)
        fence = _CODE_FENCE.match(line)
        if fence:
            fenced = "" if fenced else fence[1]
    return found


_BULLET = re.compile(r"([ \t]*)-(?:[ \t]+(.*)|)$")
_STARS = re.compile(r"(\*+)[ \t]+(.*)$")
_FENCE_OPENING = re.compile(r"\s*(```+|~~~+)")
_TAB_WIDTH = 4


@dataclass(frozen=True, kw_only=True, slots=True)
class OutlineItem:
    """A block of an outline as raw lines, without its bullet and indentation; `line` is where it begins."""

    lines: list[str]
    line: int
    depth: int
    children: list[OutlineItem] = field(default_factory=list["OutlineItem"])


@dataclass(frozen=True, kw_only=True, slots=True)
class LogseqOutline:
    """The lines before the first block, and the blocks."""

    head: list[str]
    items: list[OutlineItem]


def parse_markdown_outline(text: str) -> LogseqOutline:
    """Parse an outline of `-` bullets; indented lines belong to the bullet above, including code with bullets in it."""
    lines = text.split("\n")
    head: list[str] = []
    flat: list[OutlineItem] = []
    fenced = _FencedLines(lines)
    for number, line in enumerate(lines):
        found = None if fenced.covers(number) else _BULLET.match(line)
        if found is not None:
            flat.append(OutlineItem(lines=[found[2] or ""], line=number + 1, depth=_indent_width(found[1])))
        elif flat:
            flat[-1].lines.append(_dedent(line, flat[-1].depth + 2))
        else:
            head.append(line)
    return LogseqOutline(head=head, items=_nest_items(flat))


def parse_org_outline(text: str) -> LogseqOutline:
    """Parse an outline of starred headings; all lines up to the next heading belong to it."""
    head: list[str] = []
    flat: list[OutlineItem] = []
    for number, line in enumerate(text.split("\n")):
        found = _STARS.match(line)
        if found is not None:
            flat.append(OutlineItem(lines=[found[2]], line=number + 1, depth=len(found[1])))
        elif flat:
            flat[-1].lines.append(line.removeprefix(" " * (flat[-1].depth + 1)))
        else:
            head.append(line)
    return LogseqOutline(head=head, items=_nest_items(flat))


class _FencedLines:
    """Which lines are inside a code fence; a fence that is not closed before the outline continues is ignored."""

    def __init__(self, lines: list[str]) -> None:
        self._covered: set[int] = set()
        at, depth = 0, -1
        while at < len(lines):
            bullet = _BULLET.match(lines[at])
            content = (bullet[2] or "") if bullet else lines[at]
            depth = _indent_width(bullet[1]) if bullet else depth
            opened = _FENCE_OPENING.match(content)
            end = self._find_end(lines, at, opened[1], depth) if opened else None
            if end is not None:
                self._covered.update(range(at + 1, end + 1))
                at = end
            at += 1

    def covers(self, number: int) -> bool:
        return number in self._covered

    @staticmethod
    def _find_end(lines: list[str], start: int, fence: str, depth: int) -> int | None:
        for at in range(start + 1, len(lines)):
            stripped = lines[at].strip()
            if stripped.startswith(fence) and not stripped.strip(fence[0]):
                return at
            bullet = _BULLET.match(lines[at])
            if bullet is not None and _indent_width(bullet[1]) <= depth:
                return None
        return None


def _nest_items(flat: list[OutlineItem]) -> list[OutlineItem]:
    roots: list[OutlineItem] = []
    above: list[OutlineItem] = []
    for item in flat:
        while above and above[-1].depth >= item.depth:
            above.pop()
        (above[-1].children if above else roots).append(item)
        above.append(item)
    return roots


def _indent_width(indent: str) -> int:
    return sum(_TAB_WIDTH if sign == "\t" else 1 for sign in indent)


def _dedent(line: str, width: int) -> str:
    """Return the line without up to `width` columns of indentation."""
    at = done = 0
    while at < len(line) and line[at] in " \t" and done < width:
        done += _TAB_WIDTH if line[at] == "\t" else 1
        at += 1
    return line[at:]
