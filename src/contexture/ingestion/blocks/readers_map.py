"""Who may read which folders and pages of a source, by their paths; the most specific path decides."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast
from urllib.parse import unquote

import yaml

from contexture.errors import InvalidRequest
from contexture.ingestion.blocks.draft import DraftDocument, ImportItem, ImportItems
from contexture.text.unicode import is_valid_unicode

_NOTION_ID = re.compile(r"[ _-]?[0-9a-f]{32}(?:_all)?$")
_SUFFIX = re.compile(r"\.(?:md|markdown|org|txt|csv|json|canvas)$", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True, slots=True)
class ReadersMap:
    """Readers by folder or page; a page is named with or without its extension and the id of an export.

    ReadersMap(readers={"hr": ("group:hr",), "hr/Salaries": ("user:anna",)})
    """

    readers: Mapping[str, tuple[str, ...]]

    def apply(self, items: ImportItems) -> ImportItems:
        """Yield the documents with their readers; raises `InvalidRequest` for a path that no document has.

        Nothing is written before, so that a misspelled path never makes a page public.
        """
        unused = dict.fromkeys(self.readers)
        by_path = {_path_key(path): path for path in self.readers}
        for item in items:
            yield self._apply_to(item, by_path, unused)
        if unused:
            raise InvalidRequest(f"the readers map names {next(iter(unused))!r}, but the source has no such page")

    def _apply_to(self, item: ImportItem, by_path: Mapping[str, str], unused: dict[str, None]) -> ImportItem:
        if not isinstance(item, DraftDocument):
            return item
        parts = _path_key(item.path).split("/")
        matches = [by_path[name] for size in range(len(parts), 0, -1) if (name := "/".join(parts[:size])) in by_path]
        for path in matches:
            unused.pop(path, None)
        return replace(item, root=replace(item.root, readers=self.readers[matches[0]])) if matches else item


def read_readers_map(path: Path) -> ReadersMap:
    """Read a map from a JSON or YAML file: `{"hr": ["group:hr"]}`; raises `InvalidRequest`."""
    try:
        found: object = yaml.safe_load(path.read_text(encoding="utf-8-sig"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError, ValueError, RecursionError) as failure:
        raise InvalidRequest(f"the readers map {str(path)!r} cannot be read: {failure}") from failure
    if not isinstance(found, dict) or not found:
        raise InvalidRequest(f"the readers map {str(path)!r} must be an object with a list of readers for each path")
    readers: dict[str, tuple[str, ...]] = {}
    for name, given in cast("dict[object, object]", found).items():
        readers[str(name)] = _check_readers(str(name), given)
    keys = [_path_key(name) for name in readers]
    if twice := next((name for name, key in zip(readers, keys, strict=True) if keys.count(key) > 1), ""):
        raise InvalidRequest(f"the readers map names {twice!r} twice")
    return ReadersMap(readers=readers)


def _check_readers(name: str, given: object) -> tuple[str, ...]:
    principals: Sequence[object] = [given] if isinstance(given, str) else cast("list[object]", given or ())
    if not isinstance(given, str | list) or not principals:
        raise InvalidRequest(f"the readers of {name!r} must be a list of principals such as 'group:hr'")
    for each in principals:
        if (
            not isinstance(each, str)
            or not re.fullmatch(r"public|(?:user|group):.+", each)
            or not is_valid_unicode(each)
        ):
            raise InvalidRequest(f"the readers of {name!r} are 'public', 'user:NAME' or 'group:NAME', not {each!r:.60}")
    return tuple(cast("Sequence[str]", principals))


def _path_key(path: str) -> str:
    """Return a path without extension and export ids, in lower case."""
    file, _, block = path.partition("#")
    parts = [_NOTION_ID.sub("", part) for part in _SUFFIX.sub("", unquote(file)).strip("/").split("/")]
    return "/".join([*parts, *([block] if block else [])]).casefold()
