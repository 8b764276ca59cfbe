"""The registry of plug-ins: parts that Contexture and other packages offer as entry points.

A group holds one kind of part, and a name in the settings selects one of it. What follows the first colon of a name is
its model: `fastembed:BAAI/bge-small-en-v1.5`. Contexture registers its own parts in the same way, in `pyproject.toml`.

| group | an entry point leads to |
|---|---|
| `contexture.embedders` | a function of `model` and `threads` that returns an `Embedder` |
| `contexture.rerankers` | a function of `model` that returns a `Reranker` |
| `contexture.chat_models` | a function of `model` that returns a `ChatModel` |
| `contexture.redactors` | a function of `model`, `entities` and `ner` that returns a `Redactor` |
| `contexture.index` | a coroutine function of `address` and `options` (`IndexOptions`) that returns an open `Index` |
| `contexture.importers` | an `Importer` |
| `contexture.builders` | a `BuilderPlugin`, registered under its `kind` |

A function is called with those arguments that it declares, by name. One that declares no `model` takes none, and one
whose `model` has no default needs one. It is cheap: models are loaded when they are used.

Own names are looked up in the metadata of this distribution alone; the others are scanned for a name that is not there.
A plug-in that cannot be used, or hangs when it is imported, stops nothing but itself: `check_plugins` says why, and so
does whoever uses its name.
"""

import inspect
import re
import sys
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from importlib.metadata import Distribution, EntryPoint, PackageNotFoundError, distribution, entry_points
from pathlib import Path
from typing import Any, TypeVar, cast

import structlog
from pydantic import BaseModel

from contexture.builders.plugin import BuilderPlugin
from contexture.config import IndexOptions, Settings
from contexture.errors import ContextError, UnknownAdapter
from contexture.ingestion.blocks.import_source import FunctionImporter, Importer
from contexture.ports import ChatModel, Embedder, Index, Redactor, Reranker

T = TypeVar("T")

_DISTRIBUTION = "contexture-ai"
_FALLBACK_IMPORTER = "files"
_KIND = re.compile(r"[a-z][a-z0-9_-]*")
_SCHEME_END = re.compile(r"[:+]")
_MAX_SECONDS = 30.0  # for importing or creating a part of another package


class PluginGroup(StrEnum):
    """The groups of entry points."""

    INDEX = "contexture.index"
    EMBEDDERS = "contexture.embedders"
    RERANKERS = "contexture.rerankers"
    CHAT_MODELS = "contexture.chat_models"
    REDACTORS = "contexture.redactors"
    IMPORTERS = "contexture.importers"
    BUILDERS = "contexture.builders"


_TITLES = {
    PluginGroup.INDEX: "index",
    PluginGroup.EMBEDDERS: "embedder",
    PluginGroup.RERANKERS: "reranker",
    PluginGroup.CHAT_MODELS: "chat model",
    PluginGroup.REDACTORS: "redactor",
    PluginGroup.IMPORTERS: "importer",
    PluginGroup.BUILDERS: "builder",
}
_PORTS: Mapping[PluginGroup, type] = {
    PluginGroup.INDEX: Index,
    PluginGroup.EMBEDDERS: Embedder,
    PluginGroup.RERANKERS: Reranker,
    PluginGroup.CHAT_MODELS: ChatModel,
    PluginGroup.REDACTORS: Redactor,
    PluginGroup.IMPORTERS: Importer,
}
_ARGUMENTS: Mapping[PluginGroup, tuple[str, ...]] = {
    PluginGroup.INDEX: ("address", "options"),
    PluginGroup.EMBEDDERS: ("model", "threads"),
    PluginGroup.RERANKERS: ("model",),
    PluginGroup.CHAT_MODELS: ("model",),
    PluginGroup.REDACTORS: ("model", "entities", "ner"),
}
_TRIAL_ARGUMENTS: Mapping[PluginGroup, Mapping[str, Any]] = {
    PluginGroup.EMBEDDERS: {"threads": 1},
    PluginGroup.RERANKERS: {},
    PluginGroup.CHAT_MODELS: {},
    PluginGroup.REDACTORS: {"entities": None, "ner": False},
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Plugin:
    """An installed part: its group and name, and the distribution it comes from.

    `problem` says why it cannot be used, and is empty if it can.
    """

    group: PluginGroup
    name: str
    distribution: str
    version: str
    entry: EntryPoint
    problem: str = ""

    @property
    def is_built_in(self) -> bool:
        """Whether it is a part of Contexture itself."""
        return _same_name(self.distribution, _DISTRIBUTION)

    def __str__(self) -> str:
        """Return the part with its name and distribution."""
        return f"the {_TITLES[self.group]} {self.name!r} of {self.distribution} {self.version}"


# --- finding -------------------------------------------------------------------------------
def built_in_plugins(group: PluginGroup) -> dict[str, Plugin]:
    """The parts of Contexture itself, by name.

    Raises `UnknownAdapter` when the package is not installed, or its metadata is older than its source.
    """
    try:
        own = distribution(_DISTRIBUTION)
    except PackageNotFoundError:
        raise UnknownAdapter("contexture is not installed: run `pip install -e .` in its source folder") from None
    found = {entry.name: _describe(entry, own, group) for entry in own.entry_points.select(group=group)}
    if not found:
        raise UnknownAdapter(
            f"the metadata of contexture {own.version} lists no {_TITLES[group]}, so it is older than the source: "
            "install it again with `pip install -e .` in the source folder"
        )
    return dict(sorted(found.items()))


def installed_plugins(group: PluginGroup) -> list[Plugin]:
    """Every installed part of a group, those of Contexture first, then the others by distribution.

    One that has the name of an earlier one cannot be used. Nothing is imported.
    """
    taken = built_in_plugins(group)
    found = list(taken.values())
    others = [_describe(entry, entry.dist, group) for entry in entry_points(group=group) if entry.dist is not None]
    for plugin in sorted(others, key=lambda each: (_plain_name(each.distribution), each.name)):
        if plugin.is_built_in:
            continue
        if _SCHEME_END.search(plugin.name):
            found.append(replace(plugin, problem="its name has a ':' or '+', so no setting can select it"))
        elif (first := taken.setdefault(plugin.name, plugin)) is plugin:
            found.append(plugin)
        else:
            found.append(replace(plugin, problem=f"its name is taken by {first}"))
    return found


def find_plugin(group: PluginGroup, name: str) -> Plugin:
    """The part of this name; raises `UnknownAdapter`, which names those that are installed."""
    own = built_in_plugins(group).get(name)
    if own is not None:
        return own
    usable = [plugin for plugin in installed_plugins(group) if not plugin.problem]
    found = next((plugin for plugin in usable if plugin.name == name), None)
    if found is None:
        known = ", ".join(plugin.name for plugin in usable)
        raise UnknownAdapter(f"no {_TITLES[group]} is called {name!r}; the known ones are {known}")
    return found


def _describe(entry: EntryPoint, source: Distribution, group: PluginGroup) -> Plugin:
    name, version = str(source.metadata["Name"]), str(source.metadata["Version"])
    return Plugin(group=group, name=entry.name, distribution=name, version=version, entry=entry)


def _plain_name(name: str) -> str:
    """A distribution's name in its normal form, in which names are compared."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _same_name(one: str, other: str) -> bool:
    return _plain_name(one) == _plain_name(other)


# --- loading -------------------------------------------------------------------------------
def load_embedder(name: str, *, threads: int) -> Embedder:
    """Embedder of this name; its model is loaded on first use. Raises `UnknownAdapter`.

    `threads` limits the threads of one call, for embedders that run in this process.
    """
    return _create(PluginGroup.EMBEDDERS, name, {"threads": threads})


def load_reranker(name: str) -> Reranker:
    """Reranker of this name; its model is loaded on first use. Raises `UnknownAdapter`."""
    return _create(PluginGroup.RERANKERS, name, {})


def load_chat_model(name: str) -> ChatModel:
    """Chat model of this name, or the extractive one if it is empty; weights are loaded on first use.

    Raises `UnknownAdapter`.
    """
    return _create(PluginGroup.CHAT_MODELS, name or "extractive", {})


def load_redactor(settings: Settings) -> Redactor:
    """The redactor that the settings name; raises `UnknownAdapter`."""
    given = {"entities": settings.redaction_entities, "ner": settings.redaction_ner}
    return _create(PluginGroup.REDACTORS, settings.redaction, given)


async def open_index(address: str, options: IndexOptions) -> Index:
    """Open the index whose name begins the address; without an address, that of the store's folder.

    `qdrant+https://HOST` is an address of the index `qdrant`. Raises `UnknownAdapter`.
    """
    plugin = find_plugin(PluginGroup.INDEX, index_name(address))
    factory = _load(plugin)
    with _blame(plugin, "opened"):
        opening = _call(plugin, factory, {"address": address, "options": options})
        if not inspect.isawaitable(opening):
            raise UnknownAdapter(f"{plugin} cannot be used: its function is not a coroutine function")
        found = cast("Index", await opening)
    return _require_port(plugin, found)


def index_name(address: str) -> str:
    """The name of the index that an address leads to."""
    return _SCHEME_END.split(address, maxsplit=1)[0] if address else "folder"


def load_importers() -> tuple[Importer, ...]:
    """Every importer that works, in the order in which they are asked; see `Importer`."""
    own = built_in_plugins(PluginGroup.IMPORTERS)
    others = [plugin for plugin in check_plugins([PluginGroup.IMPORTERS]) if not plugin.is_built_in]
    last = own.pop(_FALLBACK_IMPORTER)
    order = [own[name] for name in ("logseq", "obsidian", "notion")]
    return tuple(_load_importer(plugin) for plugin in (*order, *others, last) if not plugin.problem)


def _load_importer(plugin: Plugin) -> Importer:
    """The importer; one of another package that raises recognizes nothing, so that the others are still asked."""
    importer: Importer = _load(plugin)
    if plugin.is_built_in:
        return importer

    def recognizes(path: Path) -> bool:
        try:
            with _blame(plugin, "asked"):
                return importer.recognizes(path)
        except UnknownAdapter as failure:
            structlog.get_logger().warning("an importer is skipped", reason=str(failure))
            return False

    return FunctionImporter(recognizes, importer.read)


def load_builder(kind: str) -> BuilderPlugin[Any]:
    """The builder of this kind; raises `UnknownAdapter`."""
    plugin = find_plugin(PluginGroup.BUILDERS, kind)
    return _require_builder(plugin, _load(plugin))


def load_other_builders() -> tuple[BuilderPlugin[Any], ...]:
    """The builders of other packages that work, by kind."""
    found = [plugin for plugin in check_plugins([PluginGroup.BUILDERS]) if not plugin.problem]
    return tuple(_load(plugin) for plugin in found if not plugin.is_built_in)


def _create(group: PluginGroup, name: str, given: Mapping[str, Any]) -> Any:
    """The part of this name, made by its function from the model in its name and the given arguments."""
    bare, _, model = name.partition(":")
    plugin = find_plugin(group, bare)
    factory = _load(plugin)
    with _blame(plugin, "created"):
        made = _call(plugin, factory, {**given, **({"model": model} if model else {})})
    return _require_port(plugin, made)


def _load(plugin: Plugin) -> Any:
    """What the entry point leads to; raises `UnknownAdapter` when another package's cannot be imported."""
    with _blame(plugin, "imported"):
        return _run_bounded(plugin, "imported", plugin.entry.load)


def _run_bounded(plugin: Plugin, doing: str, work: Callable[[], Any]) -> Any:
    """The result of `work`; raises `UnknownAdapter` if the code of another package does not end in time.

    It runs in a thread, which a hanging import keeps until the process ends.
    """
    if plugin.is_built_in:
        return work()
    late = UnknownAdapter(f"{plugin} cannot be {doing}: that takes longer than {_MAX_SECONDS:g} s")
    spec = getattr(sys.modules.get(plugin.entry.module), "__spec__", None)
    if getattr(spec, "_initializing", False):  # set by Python while an import runs: an earlier one still hangs
        raise late
    outcome: list[Any] = []
    failures: list[BaseException] = []

    def run() -> None:
        try:
            outcome.append(work())
        except BaseException as failure:  # noqa: BLE001 - raised again by the caller, in its own thread
            failures.append(failure)

    thread = threading.Thread(target=run, name=f"contexture-plugin-{plugin.name}", daemon=True)
    thread.start()
    thread.join(_MAX_SECONDS)
    if failures:
        raise failures[0]
    if not outcome:
        raise late
    return outcome[0]


@contextmanager
def _blame(plugin: Plugin, doing: str) -> Generator[None]:
    """Raise `UnknownAdapter`, naming the plug-in, for whatever the code of another package raises unexpectedly.

    Parts of Contexture raise their own errors, such as an `ImportError` that names the extra to install.
    """
    try:
        yield
    except ContextError:
        raise
    except (Exception, SystemExit) as failure:  # modules without their dependencies may call `sys.exit`
        if plugin.is_built_in:
            raise
        raise UnknownAdapter(f"{plugin} cannot be {doing}: {type(failure).__name__}: {failure}") from failure


def _call(plugin: Plugin, factory: Callable[..., Any], given: Mapping[str, Any]) -> Any:
    """The result of a function, called with those arguments that it declares; raises `UnknownAdapter`."""
    declared = _check_factory(plugin, factory)
    model = declared.get("model")
    if model is None and "model" in given:
        raise UnknownAdapter(f"{plugin} takes no model: write {plugin.name!r} alone")
    if model is not None and model.default is inspect.Parameter.empty and "model" not in given:
        raise UnknownAdapter(f"{plugin} needs a model: write `{plugin.name}:MODEL`")
    return factory(**{name: value for name, value in given.items() if name in declared})


def _check_factory(plugin: Plugin, factory: object) -> dict[str, inspect.Parameter]:
    """The arguments that a function declares, of those that it may; raises `UnknownAdapter` if it needs others."""
    if not callable(factory):
        raise UnknownAdapter(f"{plugin} cannot be used: it leads to a {type(factory).__name__}, not to a function")
    parameters = inspect.signature(factory).parameters
    offered = _ARGUMENTS[plugin.group]
    for name, each in parameters.items():
        named = each.kind not in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        if named and name not in offered and each.default is inspect.Parameter.empty:
            raise UnknownAdapter(f"{plugin} cannot be used: it needs {name!r}, and is given {', '.join(offered)}")
    return {name: each for name, each in parameters.items() if name in offered}


# --- checking ------------------------------------------------------------------------------
def check_plugins(groups: Sequence[PluginGroup] = tuple(PluginGroup)) -> list[Plugin]:
    """Every installed part, each with what keeps it from being used; those of other packages are imported for it.

    Where no model is needed the part is created too. An index is not opened.
    """
    return [_check_plugin(plugin) for group in groups for plugin in installed_plugins(group)]


def log_broken_plugins() -> None:
    """Log a warning for every part of another package that cannot be used."""
    for plugin in check_plugins():
        if plugin.problem:
            structlog.get_logger().warning(
                "a plug-in cannot be used",
                group=plugin.group.value,
                name=plugin.name,
                distribution=f"{plugin.distribution} {plugin.version}",
                reason=plugin.problem,
            )


def find_breaches(made: object, port: type) -> list[str]:
    """What an object lacks of a port: attributes, methods, arguments, and whether methods are coroutines.

    A class stands for the objects it makes.
    """
    breaches: list[str] = []
    for name, expected in vars(port).items():
        if name.startswith("_"):
            continue
        # Looked up without running properties, which may load a model; a proxy only has what it passes on.
        if inspect.getattr_static(made, name, None) is None and getattr(made, name, None) is None:
            breaches.append(f"it has no {name!r}")
        elif inspect.isfunction(expected):
            method = getattr(made, name)
            wrong = _method_breaches(name, method, awaited=inspect.iscoroutinefunction(expected))
            breaches += wrong or _argument_breaches(name, method, expected, unbound=inspect.isclass(made))
    return breaches


def _argument_breaches(
    name: str, method: Callable[..., Any], expected: Callable[..., Any], *, unbound: bool
) -> list[str]:
    """Whether a method can be called as the port's is: with the arguments it must have, and with all of them."""
    try:
        taken = inspect.signature(method)
    except (TypeError, ValueError):  # written in C, without a signature
        return []
    own = list(inspect.signature(expected).parameters.values())[1:]  # without `self`
    for chosen in ([each for each in own if each.default is inspect.Parameter.empty], own):
        by_name = {each.name: None for each in chosen if each.kind is inspect.Parameter.KEYWORD_ONLY}
        try:
            taken.bind(*[None] * (len(chosen) - len(by_name) + unbound), **by_name)
        except TypeError as failure:
            called = ", ".join(f"{each.name}=" if each.name in by_name else each.name for each in chosen)
            return [f"its {name!r} cannot be called with ({called}): {failure}"]
    return []


def _method_breaches(name: str, method: object, *, awaited: bool) -> list[str]:
    if not callable(method):
        return [f"its {name!r} cannot be called"]
    if inspect.iscoroutinefunction(method) != awaited:
        return [f"its {name!r} must {'' if awaited else 'not '}be a coroutine function"]
    return []


def require_usable(plugin: Plugin) -> Plugin:
    """The same part; raises `ContextError` if it cannot be used, as far as that can be known without a model."""
    found = _load(plugin)
    if plugin.group is PluginGroup.BUILDERS:
        _require_builder(plugin, found)
    elif plugin.group is PluginGroup.IMPORTERS:
        _require_port(plugin, found)
    elif plugin.group is PluginGroup.INDEX:
        _check_factory(plugin, found)
        if not inspect.iscoroutinefunction(found):
            raise UnknownAdapter(f"{plugin} cannot be used: its function is not a coroutine function")
        if inspect.isclass(owner := getattr(found, "__self__", None)):
            _require_port(plugin, owner)  # a class method opens an object of its class
    else:
        model = _check_factory(plugin, found).get("model")
        if model is None or model.default is not inspect.Parameter.empty:
            with _blame(plugin, "created"):
                made = _run_bounded(plugin, "created", lambda: _call(plugin, found, _TRIAL_ARGUMENTS[plugin.group]))
            _require_port(plugin, made)
    return plugin


def _check_plugin(plugin: Plugin) -> Plugin:
    if plugin.is_built_in or plugin.problem:
        return plugin
    try:
        return require_usable(plugin)
    except ContextError as failure:
        return replace(plugin, problem=str(failure))


def _require_port(plugin: Plugin, made: T) -> T:
    breaches = find_breaches(made, _PORTS[plugin.group])
    if breaches:
        raise UnknownAdapter(f"{plugin} does not fulfil {_PORTS[plugin.group].__name__}: {'; '.join(breaches)}")
    return made


def _require_builder(plugin: Plugin, found: object) -> BuilderPlugin[Any]:
    if not isinstance(found, BuilderPlugin):
        raise UnknownAdapter(f"{plugin} cannot be used: it leads to a {type(found).__name__}, not to a BuilderPlugin")
    builder = cast("BuilderPlugin[Any]", found)
    breaches: list[str] = []
    if builder.kind != plugin.name or not _KIND.fullmatch(builder.kind):
        breaches.append(f"its kind {builder.kind!r} must be the name it is registered under, in lower case")
    breaches += _method_breaches("recompose", builder.recompose, awaited=False)
    if not plugin.is_built_in:
        breaches += _method_breaches("build", builder.build, awaited=True)
        if not (inspect.isclass(builder.request) and issubclass(builder.request, BaseModel)):
            breaches.append("its 'request' is not a pydantic model")
    if breaches:
        raise UnknownAdapter(f"{plugin} does not fulfil BuilderPlugin: {'; '.join(breaches)}")
    if builder.request is not None:
        with _blame(plugin, "described by JSON Schema"):  # without which a service could not write its OpenAPI
            cast("type[BaseModel]", builder.request).model_json_schema()
    return builder
