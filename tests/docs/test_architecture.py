"""The page on the architecture describes the tree as it is."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "contexture"
PAGE = (ROOT / "docs" / "architecture.md").read_text("utf-8")


def section(title):
    """The text below a heading."""
    return re.split(r"^## ", PAGE.partition(f"## {title}\n")[2], flags=re.MULTILINE)[0]


def test_the_layers_are_those_that_are_enforced():
    """Line by line, from the top, as import-linter has them."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"]
    enforced = next(each["layers"] for each in contracts if each["type"] == "layers")
    drawn = re.search(r"```text\n(.*?)```", section("Layers"), re.DOTALL)[1].splitlines()

    assert [layer.replace("contexture.", "") for layer in enforced] == drawn


def test_the_contract_on_adapters_covers_every_module():
    """All but `wiring`, which may import adapters, and the test helpers."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"]
    covered = next(each["source_modules"] for each in contracts if each["name"] == "only wiring imports adapters")
    files = {path.stem for path in PACKAGE.glob("*.py")}
    folders = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}

    assert {name.split(".")[1] for name in covered} | {"__init__", "adapters", "testing", "wiring"} == files | folders


def test_every_folder_is_described():
    """One row a folder, in order, and no row for a folder that is gone."""
    described = re.findall(r"^\| `(\w+)` \|", section("Folders"), re.MULTILINE)
    folders = {each.name for each in PACKAGE.iterdir() if each.is_dir() and each.name != "__pycache__"}

    assert sorted(folders) == described


@pytest.mark.parametrize("path", sorted(set(re.findall(r"[\w/]+(?:\.py|/)(?=[`\s])", PAGE))))
def test_every_path_exists(path):
    """Modules and folders that the page names are where it says."""
    assert (PACKAGE / path).exists()


@pytest.mark.parametrize(("name", "path"), re.findall(r"`(\w+)` (?:and `\w+` )?in `([\w/]+\.py)`", PAGE))
def test_every_function_is_where_it_is_said_to_be(name, path):
    """A function named with its module is defined there."""
    assert re.search(rf"^(?:async )?def {name}\b", (PACKAGE / path).read_text("utf-8"), re.MULTILINE)
