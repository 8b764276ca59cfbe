"""What the site of the documentation does beyond Markdown: the page of public names gets their docstrings."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import contexture

if TYPE_CHECKING:
    from mkdocs.structure.pages import Page

_NAME = re.compile(r"^::: contexture\.(\w+)$", re.MULTILINE)
_NOTHING: Mapping[str, Any] = MappingProxyType({})


def on_page_markdown(markdown: str, page: Page, config: Any = _NOTHING, files: Any = _NOTHING) -> str:
    """The text of a page, each line `::: contexture.NAME` replaced by what NAME says about itself."""
    del page, config, files
    return _NAME.sub(lambda found: describe_name(found[1]), markdown)


def describe_name(name: str) -> str:
    """Return a public name with its signature and docstring, and for a class the same of its public methods."""
    value = getattr(contexture, name)
    parts = [_describe(f"### `{name}`", name, value, value.__doc__)]
    if inspect.isclass(value):
        parts += [
            _describe(f"#### `{name}.{member}`", member, found, doc) for member, found, doc in public_members(value)
        ]
    return "\n".join(parts)


def public_members(owner: type) -> Iterator[tuple[str, Any, str]]:
    """Yield the documented public methods and properties that a class of this package defines, by name."""
    for name in sorted(dir(owner)):
        if name.startswith("_"):
            continue
        home = next((each for each in owner.__mro__ if name in vars(each)), owner)
        if not home.__module__.startswith("contexture"):
            continue
        found = vars(home)[name]
        if isinstance(found, (property, cached_property)):
            yield name, None, found.__doc__ or ""
        elif isinstance(found, (classmethod, staticmethod)) or inspect.isfunction(found):
            yield name, getattr(owner, name), found.__doc__ or ""


def _describe(heading: str, name: str, value: Any, doc: str | None) -> str:
    text = inspect.cleandoc(doc or "")
    call = "" if value is None else f"```python\n{_keyword(value)}{name}{_signature(value)}\n```\n\n"
    return f"{heading}\n\n{call}```text\n{text}\n```\n"


def _keyword(value: Any) -> str:
    return "await " if inspect.iscoroutinefunction(value) else ""


def _signature(value: Any) -> str:
    try:
        found = inspect.signature(value)
    except (TypeError, ValueError):
        return ""
    own = 1 if inspect.isfunction(value) else 0  # the object itself
    shown = list(found.parameters.values())[own:]
    text = str(found.replace(parameters=shown))
    return re.sub(r"\b(?:contexture|collections|datetime|pathlib)(?:\.\w+)*\.(?=\w)", "", text).replace("'", "")
