"""Packages whose names are imported when they are used."""

import ast
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

_LazyNames = tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]


def lazy_names(package: str, file: str) -> _LazyNames:
    """`__getattr__`, `__dir__` and `__all__` of the package whose `__init__.py` is `file`.

    The stub beside it, which type checkers read, lists the names: `from module import name as name`, or for another
    name than the module's `from module import defined` and `name = defined`.
    """
    found: dict[str, tuple[str, str]] = {}
    names: list[str] = []
    for node in ast.parse(Path(file).with_suffix(".pyi").read_text("utf-8")).body:
        match node:
            case ast.ImportFrom(module=str(module), names=[ast.alias(name=defined, asname=name)]):
                found[defined] = module, defined
                names += [name] if name else []
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Name(id=defined)):
                found[name] = found[defined]
                names.append(name)
            case _:
                raise ValueError(f"{ast.unparse(node)!r} in the stub of {package!r} is not understood")

    def import_name(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module, defined = found[name]
        return getattr(import_module(module), defined)

    return import_name, lambda: sorted(names), sorted(names)
