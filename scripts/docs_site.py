"""What the site of the documentation does beyond Markdown: the page of public names gets their docstrings."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
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
    return _NAME.sub(lambda found: described(found[1]), markdown)


def described(name: str) -> str:
    """A public name with how it is called and its docstring."""
    value = getattr(contexture, name)
    text = inspect.cleandoc(value.__doc__ or "")
    return f"### `{name}`\n\n```python\n{name}{_signature(value)}\n```\n\n```text\n{text}\n```\n"


def _signature(value: Any) -> str:
    try:
        return str(inspect.signature(value))
    except (TypeError, ValueError):
        return ""
