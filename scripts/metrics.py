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
_STORE_BACKENDS = (f"{PACKAGE}.adapters.index", f"{PACKAGE}.adapters.postgres")


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


def describe_service() -> dict[str, Any]:
    """The OpenAPI document of the service with the routes of the demonstration."""
    import asyncio
    import tempfile

    from contexture import Settings
    from contexture.engine import open_store
    from contexture.service.app import create_app

    async def describe() -> dict[str, Any]:
        with tempfile.TemporaryDirectory() as folder:
            settings = Settings(home=Path(folder) / "store")
            async with open_store(settings) as engine:
                return create_app(engine, keys=None, settings=settings, members={"anna": ()}).openapi()

    return asyncio.run(describe())


def untyped_properties(document: dict[str, Any], *, answers: bool) -> list[str]:
    """Parts of requests, or of answers, in an OpenAPI document that have no type.

    A part is a body, a property, an item or a value of a map, wherever it is nested. A list has a type if its items
    have one, and an object if its properties or its values have one; what may be any JSON has a list of types.
    """
    found = dict[str, None]()
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            place = f"{method.upper()} {path}"
            contents = _answer_contents(operation) if answers else [operation.get("requestBody", {}).get("content", {})]
            for kind, content in ((kind, part) for each in contents for kind, part in each.items()):
                if "json" in kind:
                    found |= dict.fromkeys(_untyped_parts(content.get("schema", {}), place, document, ()))
    return list(found)


def _answer_contents(operation: dict[str, Any]) -> list[dict[str, Any]]:
    return [each["content"] for each in operation["responses"].values() if "content" in each]


def _untyped_parts(schema: Any, place: str, document: dict[str, Any], seen: tuple[str, ...]) -> list[str]:
    """The places below a schema that say nothing; `seen` are the components that lead to it."""
    if not isinstance(schema, dict):
        return [] if schema is False else [place]
    if reference := schema.get("$ref"):
        name = reference.rpartition("/")[2]
        inner = document["components"]["schemas"][name]
        return [] if name in seen else _untyped_parts(inner, name, document, (*seen, name))
    if choices := [each for key in ("anyOf", "oneOf", "allOf") for each in schema.get(key, ())]:
        return [part for each in choices for part in _untyped_parts(each, place, document, seen)]
    kind = schema.get("type")
    if isinstance(kind, list) or {"enum", "const"} & schema.keys():
        return []
    inner = {f"{place}.{name}": each for name, each in schema.get("properties", {}).items()}
    if kind == "array":
        inner |= {f"{place}[{at}]": each for at, each in enumerate(schema.get("prefixItems", ()))}
        inner |= {} if "prefixItems" in schema else {f"{place}[]": schema.get("items")}
    elif kind == "object" and (not inner or isinstance(schema.get("additionalProperties"), dict)):
        inner |= {f"{place}{{}}": schema.get("additionalProperties")}
    elif kind is None:
        return [place]
    return [part for at, each in inner.items() for part in _untyped_parts(each, at, document, seen)]


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
    stores = sum(name.startswith(_STORE_BACKENDS) for name in files)
    within = sum(SMALL <= count <= LARGE for count in lines.values())
    shared = sorted(name for name, count in classes.items() if count > 1)
    document = describe_service()
    asked, answered = (untyped_properties(document, answers=answers) for answers in (False, True))
    print(f"files                      {len(files)} ({len(modules) - len(files)} empty), {within} of 100 to 400 lines")
    print(f"files but store backends   {len(files) - stores}")
    print(f"lines per file             mean {mean(lines.values()):.0f}, median {median(lines.values()):.0f}")
    print(f"lines of code              {code}, {imports / code:.1%} of them imports")
    print(f"files with one importer    {len(single) / len(files):.0%} ({len(single)})")
    print(f"longest chain of imports   {len(chain)}")
    print(f"class names used twice     {len(shared)}{': ' * bool(shared)}{', '.join(shared)}")
    print(f"untyped wire properties    {len(asked)} of requests, {len(answered)} of answers")
    print(f"broad excepts              {broad}")
    if "--verbose" in sys.argv:
        print("chain:", *chain, sep="\n  ")
        print("untyped:", *asked, *answered, sep="\n  ")
        print("one importer:", *(f"{name} ({lines[name]}) <- {min(importers[name])}" for name in single), sep="\n  ")


def _is_broad(kind: ast.expr) -> bool:
    return ast.unparse(kind) in {"Exception", "BaseException"}


if __name__ == "__main__":
    print_metrics()
