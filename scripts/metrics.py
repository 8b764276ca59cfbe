"""Prints how the source reads in numbers: files and their size, imports, coupling, names, types of the wire, excepts.

`contexture.testing` is left out. A chain of imports is one that runs when a module is imported; imports inside
functions and below `if TYPE_CHECKING` do not count there, and do count as importers.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter, defaultdict
from functools import cache
from pathlib import Path
from statistics import mean, median
from typing import Any

SOURCE = Path(__file__).parents[1] / "src"
PACKAGE = "contexture"
SMALL, LARGE = 100, 400


def load_modules() -> dict[str, tuple[str, ast.Module]]:
    """Every module of the package with its text and tree."""
    found = {}
    for path in sorted((SOURCE / PACKAGE).rglob("*.py")):
        name = ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")
        if not name.startswith(f"{PACKAGE}.testing"):
            text = path.read_text("utf-8")
            found[name] = (text, ast.parse(text))
    return found


def imported_modules(tree: ast.AST, names: set[str]) -> set[str]:
    """The modules of the package that a tree imports, wherever it does."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {
                inner if (inner := f"{node.module}.{alias.name}") in names else node.module for alias in node.names
            }
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return found & names


def imported_at_start(tree: ast.Module, names: set[str]) -> set[str]:
    """The modules that are imported when the module itself is."""
    body = [
        node
        for node in tree.body
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        and not (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test))
    ]
    return imported_modules(ast.Module(body, []), names)


def longest_chain(edges: dict[str, set[str]]) -> list[str]:
    """The longest path along imports; modules are assumed to import each other in no circle."""

    @cache
    def below(name: str) -> tuple[str, ...]:
        paths = [below(other) for other in sorted(edges[name] - {name})]
        return (name, *max(paths, key=len, default=()))

    return list(max((below(name) for name in sorted(edges)), key=len))


def count_lines(text: str, tree: ast.Module) -> tuple[int, int]:
    """Lines of code, without blank lines, comments and docstrings; and those of them that import."""
    documented = set[int]()
    imports = set[int]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            imports |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            documented |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    code = {
        at
        for at, line in enumerate(text.splitlines(), 1)
        if line.strip() and not line.strip().startswith("#") and at not in documented
    }
    return len(code), len(code & imports)


def untyped_properties() -> list[str]:
    """Properties of requests and answers in the OpenAPI description that have no type."""
    import asyncio
    import tempfile

    from contexture import Settings
    from contexture.engine import open_store
    from contexture.service.app import create_app

    async def describe() -> dict[str, Any]:
        with tempfile.TemporaryDirectory() as folder:
            settings = Settings(home=Path(folder) / "store")
            async with open_store(settings) as engine:
                return create_app(engine, keys=None, settings=settings).openapi()

    schemas = asyncio.run(describe())["components"]["schemas"]
    said = {"$ref", "allOf", "anyOf", "const", "enum", "oneOf", "type"}
    return [
        f"{name}.{field}"
        for name, schema in schemas.items()
        for field, shape in schema.get("properties", {}).items()
        if not said & set(shape) or _is_open(shape)
    ]


def _is_open(shape: dict[str, Any]) -> bool:
    """An array or object of which nothing more is said."""
    choices = shape.get("anyOf", [shape])
    return any(choice == {} or (choice.get("type") == "array" and not choice.get("items")) for choice in choices)


def print_metrics() -> None:
    """One line a measure."""
    modules = load_modules()
    names = set(modules)
    files = {name: text for name, (text, _) in modules.items() if text.strip()}
    lines = {name: len(text.splitlines()) for name, text in files.items()}
    counts = [count_lines(text, tree) for text, tree in modules.values()]
    code, imports = (sum(each) for each in zip(*counts, strict=True))
    importers = defaultdict[str, set[str]](set)
    for name, (_, tree) in modules.items():
        for other in imported_modules(tree, names) - {name}:
            importers[other].add(name)
    single = [name for name in files if len(importers[name]) == 1]
    chain = longest_chain({name: imported_at_start(tree, names) for name, (_, tree) in modules.items()})
    nodes = [node for _, tree in modules.values() for node in ast.walk(tree)]
    classes = Counter(node.name for node in nodes if isinstance(node, ast.ClassDef) and not node.name.startswith("_"))
    broad = sum(isinstance(n, ast.ExceptHandler) and n.type is not None and _is_broad(n.type) for n in nodes)
    within = sum(SMALL <= count <= LARGE for count in lines.values())
    shared = sorted(name for name, count in classes.items() if count > 1)
    untyped = untyped_properties()
    print(f"files                      {len(files)} ({len(modules) - len(files)} empty), {within} of 100 to 400 lines")
    print(f"lines per file             mean {mean(lines.values()):.0f}, median {median(lines.values()):.0f}")
    print(f"lines of code              {code}, {imports / code:.1%} of them imports")
    print(f"files with one importer    {len(single) / len(files):.0%} ({len(single)})")
    print(f"longest chain of imports   {len(chain)}")
    print(f"class names used twice     {len(shared)}{': ' * bool(shared)}{', '.join(shared)}")
    print(f"untyped wire properties    {len(untyped)}")
    print(f"broad excepts              {broad}")
    if "--verbose" in sys.argv:
        print("chain:", *chain, sep="\n  ")
        print("untyped:", *untyped, sep="\n  ")
        print("one importer:", *(f"{name} ({lines[name]}) <- {min(importers[name])}" for name in single), sep="\n  ")


def _is_broad(kind: ast.expr) -> bool:
    return ast.unparse(kind) in {"Exception", "BaseException"}


if __name__ == "__main__":
    print_metrics()
