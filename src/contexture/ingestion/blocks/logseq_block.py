"""One block of a Logseq outline: its kind, its text and its properties."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from contexture.ingestion.blocks.draft import Draft
from contexture.ingestion.blocks.outline import Item
from contexture.ingestion.blocks.sources import SourceFile
from contexture.ingestion.blocks.tasks import marked, stamps
from contexture.types import Json
from contexture.workspace import BlockType

_PROPERTY = re.compile(r"[ \t]*([A-Za-zА-яЁё][\w./-]*)::(?:[ \t]+(.*))?$")
_DRAWER = re.compile(r"[ \t]*:([\w./-]+):(?:[ \t]+(.*))?$")
_FENCE = re.compile(r"\s*(```+|~~~+)[ \t]*([\w+#.-]*)")
_ORG_BLOCK = re.compile(r"#\+BEGIN_(\w+)[ \t]*(\S*)[^\n]*\n(.*?)\n?[ \t]*#\+END_\1[ \t]*$", re.IGNORECASE | re.DOTALL)
_HEADING = re.compile(r"(#{1,6})[ \t]+(.*)", re.DOTALL)
_IMAGE = re.compile(r"!\[[^\]]*\]\([^)]*\)(?:\{[^}]*\})?$")
_EMBED = re.compile(r"\{\{(?:embed|video|youtube|tweet|renderer)\b.*\}\}$", re.DOTALL)
_MACHINE = frozenset(
    {"id", "collapsed", "created-at", "updated-at", "created_at", "updated_at", "custom-id", "custom_id"}
)
_OURS = _MACHINE | {"title", "alias", "tags"}
_CALLOUTS = frozenset({"note", "tip", "important", "caution", "warning", "pinned", "example"})
_MILLISECONDS = 1_000


def drafted(item: Item, *, org: bool, modified: datetime | None) -> Draft:
    """The block that an item is; properties that people write stay in its text too, as links may stand in them."""
    lines, properties = split_properties(item.lines, drawers=org)
    text = "\n".join(lines).strip("\n")
    known = properties.pop("id", "")
    created, changed = _time(properties, "created"), _time(properties, "updated")
    text, dates = stamps(text)
    task = marked(text)
    if task is not None:
        text, state = task
        kind, shown, extra = BlockType.TODO, text, state
    else:
        kind, shown, extra = _kind(text)
    return Draft(
        type=kind,
        text=shown.strip(),
        properties={**properties, **extra, **dates},
        known=known if isinstance(known, str) else "",
        created=created,
        modified=changed or modified,
        line=item.line,
    )


def head_drafts(lines: list[str], file: SourceFile) -> list[Draft]:
    """What stands before the outline, a block per paragraph; properties there are the page's own."""
    found: list[Draft] = []
    for line, part in _paragraphs(lines):
        lines = split_properties(part, drawers=file.suffix == ".org", all_out=True)[0]
        text = "\n".join(lines).strip()
        if text:
            kind, shown, extra = _kind(text, plain=BlockType.PARAGRAPH)
            found.append(Draft(type=kind, text=shown, properties=extra, modified=file.modified, line=line))
    return found


def split_properties(
    lines: list[str], *, drawers: bool = False, all_out: bool = False
) -> tuple[list[str], dict[str, Json]]:
    """The lines without drawers and without properties for machines, or for anyone, and all properties."""
    kept: list[str] = []
    found: dict[str, Json] = {}
    fenced = drawer = ""
    for line in lines:
        stripped = line.strip()
        if not fenced and (drawer or stripped in {":PROPERTIES:", ":LOGBOOK:"}):
            drawer = _in_drawer(stripped, drawer, found)
            continue
        fence = _FENCE.match(line)
        if fence and (not fenced or stripped == fenced):
            fenced = "" if fenced else fence[1]
        told = None if fenced or drawers else _PROPERTY.match(line)
        if told is not None:
            found[_called(told[1])] = (told[2] or "").strip()
        if told is None or not (all_out or told[1].lower() in _MACHINE):
            kept.append(line)
    return kept, found


def split_list(value: Json) -> list[str]:
    """The names in a value such as `one, [[two]]`; commas inside brackets part nothing."""
    parts = re.split(r",(?![^\[]*\]\])", value) if isinstance(value, str) else []
    return [name for part in parts if (name := part.strip())]


def _in_drawer(line: str, drawer: str, found: dict[str, Json]) -> str:
    """Take one line of a drawer; which drawer the next line is in."""
    if line == ":END:":
        return ""
    if not drawer:
        return line
    if drawer == ":LOGBOOK:":
        found["logbook"] = f"{found['logbook']}\n{line}" if "logbook" in found else line
    elif told := _DRAWER.match(line):
        found[_called(told[1])] = (told[2] or "").strip()
    return drawer


def _called(name: str) -> str:
    """A property's name as it is written, or as we know it."""
    return name.lower() if name.lower() in _OURS else name


def _kind(text: str, *, plain: BlockType = BlockType.BULLETED) -> tuple[BlockType, str, dict[str, Json]]:
    """What a block is, its text without the signs that say so, and what they say."""
    if code := _code(text):
        return BlockType.CODE, code[1], {"language": code[0]} if code[0] else {}
    if quoted := _ORG_BLOCK.fullmatch(text):
        return _org_block(quoted)
    if heading := _HEADING.match(text):
        return BlockType.HEADING, heading[2], {"level": len(heading[1])}
    if text.startswith("|") and all(line.lstrip().startswith("|") for line in text.split("\n")):
        return BlockType.TABLE, text, {}
    if text.startswith(">"):
        return BlockType.QUOTE, "\n".join(line.removeprefix(">").removeprefix(" ") for line in text.split("\n")), {}
    return _single(text, plain)


def _single(text: str, plain: BlockType) -> tuple[BlockType, str, dict[str, Json]]:
    if _IMAGE.fullmatch(text):
        return BlockType.IMAGE, text, {}
    if _EMBED.fullmatch(text):
        return BlockType.EMBED, text, {}
    if text in {"---", "***", "___"}:
        return BlockType.DIVIDER, "", {"rule": text}
    return plain, text, {}


def _org_block(found: re.Match[str]) -> tuple[BlockType, str, dict[str, Json]]:
    name, argument, inside = found[1].lower(), found[2], found[3]
    if name == "quote":
        return BlockType.QUOTE, inside, {}
    if name in _CALLOUTS:
        return BlockType.CALLOUT, inside, {"kind": name}
    if name in {"src", "example", "query", "export"}:
        return BlockType.CODE, inside, {"language": argument or name}
    return BlockType.BULLETED, found[0], {}


def _code(text: str) -> tuple[str, str] | None:
    """Language and code of a block that is one fence and nothing else."""
    opened = _FENCE.match(text)
    lines = text.split("\n")
    if opened is None or len(lines) < 2 or lines[-1].strip() != opened[1]:  # noqa: PLR2004 - an opening and a closing line
        return None
    if any(line.strip() == opened[1] for line in lines[1:-1]):
        return None
    return opened[2], "\n".join(lines[1:-1])


def _time(properties: dict[str, Json], what: str) -> datetime | None:
    """A time that Logseq keeps in milliseconds; it is taken out of the properties."""
    given = [properties.pop(name, None) for name in (f"{what}-at", f"{what}_at")]
    told = next((each for each in given if isinstance(each, str) and each.isdigit()), None)
    try:
        return None if told is None else datetime.fromtimestamp(int(told) / _MILLISECONDS, UTC)
    except (ValueError, OverflowError, OSError):
        return None


def _paragraphs(lines: list[str]) -> list[tuple[int, list[str]]]:
    """Runs of lines between empty ones, a fence kept whole, each with the number of its first line."""
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
        fence = _FENCE.match(line)
        if fence:
            fenced = "" if fenced else fence[1]
    return found
