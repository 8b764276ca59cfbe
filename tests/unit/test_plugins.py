"""The registry of plug-ins: what is installed is found, and what cannot be used is named and stops nothing else."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Callable
from importlib.metadata import distribution
from importlib.util import find_spec
from pathlib import Path

import pytest

from contexture.config import IndexOptions, Settings
from contexture.errors import UnknownAdapter
from contexture.ingestion.blocks.import_source import FILES, ImportSource, find_importer
from contexture.ports import Embedder
from contexture.testing.doubles import NOON, HashEmbedder
from contexture.wiring import plugins
from contexture.wiring.plugins import PluginGroup

ROOT = Path(__file__).parents[2]
GOOD = """
import numpy as np

class Flat:
    name, dimensions = "flat-1", 2
    async def embed(self, texts):
        return np.ones((len(texts), 2), np.float32)
    def calibrate(self, cosine):
        return cosine

def flat(model="", *, threads):
    found = Flat()
    found.name = f"flat-{model or 'none'}-{threads}"
    return found
"""

UNDESCRIBED = """
from collections.abc import Callable
from pydantic import BaseModel

class Poem(BaseModel):
    read: Callable[[], str]

async def build(services, request, *, scope, now): ...

POEM = BuilderPlugin(kind="poem", recompose=print, request=Poem, build=build)
"""

Install = Callable[..., str]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Installs a distribution of one module into a folder on the path."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def write(name: str, group: PluginGroup, code: str, **entries: str) -> str:
        module = name.replace("-", "_")
        (tmp_path / f"{module}.py").write_text(code)
        info = tmp_path / f"{module}-2.5.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 2.5\n")
        lines = [f"{entry} = {module}{value}" for entry, value in entries.items()]
        (info / "entry_points.txt").write_text("\n".join([f"[{group}]", *lines, ""]))
        monkeypatch.delitem(sys.modules, module, raising=False)
        return module

    return write


def problems(group: PluginGroup) -> dict[tuple[str, str], str]:
    """What is wrong with the parts of other packages, by name and distribution."""
    found = plugins.check_plugins([group])
    return {(each.name, each.distribution): each.problem for each in found if not each.is_built_in}


# --- built-in parts ------------------------------------------------------------------------
@pytest.mark.parametrize("group", list(PluginGroup))
def test_built_in_parts_are_registered_as_the_project_says(group: PluginGroup) -> None:
    """The installed metadata is that of the source; `make setup` installs it again after a change."""
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["entry-points"]
    registered = {name: plugin.entry.value for name, plugin in plugins.built_in_plugins(group).items()}

    assert declared[group] == registered


@pytest.mark.parametrize(
    ("group", "name"), [(group, name) for group in PluginGroup for name in plugins.built_in_plugins(group)]
)
def test_built_in_parts_can_be_used(group: PluginGroup, name: str) -> None:
    """Each leads to something that fulfils its port; LiteLLM takes ten seconds to import, and has tests of its own."""
    found = plugins.find_plugin(group, name)
    assert find_spec(found.entry.module) if name == "litellm" else plugins.require_usable(found)


def test_a_built_in_name_is_found_without_looking_at_other_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading the metadata of every installed package takes longer than most commands."""
    monkeypatch.setattr(plugins, "entry_points", lambda **_: pytest.fail("other packages were scanned"))

    assert "minilm-en-2" == plugins.load_embedder("minilm", threads=1).name


def test_a_name_that_no_setting_can_select_is_reported(install: Install) -> None:
    """What follows a colon in a setting is a model."""
    install("flat-earth", PluginGroup.EMBEDDERS, GOOD, **{"flat:small": ":flat"})

    assert "no setting can select it" in problems(PluginGroup.EMBEDDERS)[("flat:small", "flat-earth")]


@pytest.mark.parametrize(("entries", "said"), [(None, "contexture is not installed"), ("", "install it again")])
def test_missing_and_stale_metadata_say_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, entries: str | None, said: str
) -> None:
    """A source folder on the path is not enough."""
    if entries is not None:
        info = tmp_path / "contexture_ai-0.0.1.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: contexture-ai\nVersion: 0.0.1\n")
        (info / "entry_points.txt").write_text(entries)
    monkeypatch.setattr(sys, "path", [str(tmp_path)])

    with pytest.raises(UnknownAdapter, match=said):
        plugins.built_in_plugins(PluginGroup.EMBEDDERS)


# --- parts of other packages ---------------------------------------------------------------
def test_a_part_of_another_package_is_used_by_its_name(install: Install) -> None:
    """It gets its model and the arguments that it declares, and is listed with its package and version."""
    install("flat-earth", PluginGroup.EMBEDDERS, GOOD, flat=":flat")
    found = {each.name: each for each in plugins.installed_plugins(PluginGroup.EMBEDDERS)}

    assert ("flat-earth", "2.5") == (found["flat"].distribution, found["flat"].version)
    assert "flat-none-3" == plugins.load_embedder("flat", threads=3).name
    assert "flat-big:er-1" == plugins.load_embedder("flat:big:er", threads=1).name
    assert {("flat", "flat-earth"): ""} == problems(PluginGroup.EMBEDDERS)


BROKEN = [
    ("import no_such_module", ":flat", "cannot be imported: ModuleNotFoundError: No module named 'no_such_module'"),
    ("1 / 0", ":flat", "cannot be imported: ZeroDivisionError"),
    ("raise SystemExit('no licence')", ":flat", "cannot be imported: SystemExit: no licence"),
    (GOOD, ":round", "cannot be imported: AttributeError"),
    ("flat = 3", ":flat", "leads to a int, not to a function"),
    ("def flat(threads): raise KeyError('x')", ":flat", "cannot be created: KeyError: 'x'"),
    ("def flat(): return 5", ":flat", "does not fulfil Embedder: it has no 'name'; it has no 'dimensions'"),
    (GOOD.replace("async def", "def"), ":flat", "its 'embed' must be a coroutine function"),
    (GOOD.replace("def calibrate", "async def calibrate"), ":flat", "its 'calibrate' must not be a coroutine function"),
    ("def flat(colour): pass", ":flat", "it needs 'colour', and is given model, threads"),
    (GOOD.replace("embed(self, texts)", "embed(self)"), ":flat", "its 'embed' cannot be called with (texts): too many"),
    (GOOD.replace("cosine)", "cosine, more)"), ":flat", "its 'calibrate' cannot be called with (cosine): missing"),
]


@pytest.mark.parametrize(("code", "value", "said"), BROKEN, ids=range(len(BROKEN)))
def test_a_broken_part_is_named_with_its_cause_and_stops_nothing_else(
    install: Install, code: str, value: str, said: str
) -> None:
    """The doctor and whoever uses it are told the same; parts beside it work."""
    install("flat-earth", PluginGroup.EMBEDDERS, code, flat=value)
    install("sound-earth", PluginGroup.EMBEDDERS, GOOD, sound=":flat")

    found = problems(PluginGroup.EMBEDDERS)
    assert found[("flat", "flat-earth")].startswith("the embedder 'flat' of flat-earth 2.5 ")
    assert said in found[("flat", "flat-earth")]
    assert found[("sound", "sound-earth")] == ""
    with pytest.raises(UnknownAdapter) as refused:
        plugins.load_embedder("flat", threads=1)
    assert said in str(refused.value)
    assert plugins.load_embedder("sound", threads=1)
    assert plugins.load_embedder("minilm", threads=1)


def test_a_part_that_hangs_when_it_is_imported_is_named_and_stops_nothing(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is waited for once, and the others are checked."""
    monkeypatch.setattr(plugins, "_MAX_SECONDS", 0.05)
    hangs = "import threading\nthreading.Event().wait()"
    install("sleepy", PluginGroup.EMBEDDERS, hangs, sleepy=":flat")
    install("awake", PluginGroup.EMBEDDERS, GOOD, awake=":flat")
    found = problems(PluginGroup.EMBEDDERS)
    monkeypatch.setattr(plugins, "_MAX_SECONDS", 1e9)

    assert "cannot be imported: that takes longer than 0.05 s" in found["sleepy", "sleepy"]
    assert "cannot be imported: that takes longer" in problems(PluginGroup.EMBEDDERS)["sleepy", "sleepy"]


def test_nobody_takes_the_name_of_another(install: Install) -> None:
    """A built-in part keeps its name, and of two packages the first by name has it; the others are reported."""
    install("zeta", PluginGroup.EMBEDDERS, GOOD.replace("flat-", "zeta-"), flat=":flat", minilm=":flat")
    install("alpha", PluginGroup.EMBEDDERS, GOOD.replace("flat-", "alpha-"), flat=":flat")
    own = distribution("contexture-ai").version

    assert problems(PluginGroup.EMBEDDERS) == {
        ("flat", "alpha"): "",
        ("flat", "zeta"): "its name is taken by the embedder 'flat' of alpha 2.5",
        ("minilm", "zeta"): f"its name is taken by the embedder 'minilm' of contexture-ai {own}",
    }
    assert "alpha-none-1" == plugins.load_embedder("flat", threads=1).name
    assert "minilm-en-2" == plugins.load_embedder("minilm", threads=1).name


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("def start(address): pass", "not a coroutine function"),
        ("async def start(address): return 5", "does not fulfil Index: it has no 'create'"),
        ("async def start(address): raise OSError('gone')", "cannot be opened: OSError: gone"),
    ],
)
async def test_a_broken_index_is_named(install: Install, tmp_path: Path, code: str, said: str) -> None:
    """By whoever opens a store in it."""
    install("far-away", PluginGroup.INDEX, code, far=":start")
    with pytest.raises(UnknownAdapter, match=said):
        await plugins.open_index("far:x", IndexOptions(vectors={}, settings=Settings(home=tmp_path)))


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("POEM = 5", "leads to a int, not to a BuilderPlugin"),
        ("POEM = BuilderPlugin(kind='ode', recompose=print)", "its kind 'ode' must be the name"),
        ("POEM = BuilderPlugin(kind='poem', recompose=print)", "its 'build' cannot be called"),
        ("POEM = BuilderPlugin(kind='poem', recompose=print, build=print)", "its 'build' must be a coroutine function"),
        (UNDESCRIBED, "cannot be described by JSON Schema: PydanticInvalidForJsonSchema"),
    ],
)
def test_a_broken_builder_is_named(install: Install, code: str, said: str) -> None:
    """And is not among those that a service offers."""
    install(
        "verses", PluginGroup.BUILDERS, f"from contexture.builders.plugin import BuilderPlugin\n{code}", poem=":POEM"
    )

    assert said in problems(PluginGroup.BUILDERS)[("poem", "verses")]
    assert plugins.load_other_builders() == ()
    with pytest.raises(UnknownAdapter, match=said):
        plugins.load_builder("poem")


def test_importers_of_other_packages_are_asked_before_plain_files(install: Install, tmp_path: Path) -> None:
    """And after those for Logseq, Obsidian and Notion; one that does not work is left out."""
    install(
        "scrolls", PluginGroup.IMPORTERS, "def recognizes(path): return True\ndef read(source): return 7", scroll=""
    )
    install("tablets", PluginGroup.IMPORTERS, "def recognizes(path): return True", tablet="")
    order = plugins.load_importers()

    chosen = find_importer(tmp_path, order)
    assert order[-2] is chosen
    assert 7 == chosen.read(ImportSource(path=tmp_path, now=NOON))
    assert 5 == len(order)
    assert "it has no 'read'" in problems(PluginGroup.IMPORTERS)[("tablet", "tablets")]


def test_an_importer_that_raises_is_skipped(install: Install, tmp_path: Path) -> None:
    """The others are still asked, so that one package cannot stop every import."""
    install("scrolls", PluginGroup.IMPORTERS, "def recognizes(path): 1 / 0\ndef read(source): yield", scroll="")
    order = plugins.load_importers()

    assert 5 == len(order)
    assert find_importer(tmp_path, order) is FILES


def test_a_proxy_fulfils_a_port_by_what_it_passes_on() -> None:
    """Attributes that are looked up dynamically count."""

    class Proxy:
        def __init__(self, inner: object) -> None:
            self._inner = inner

        def __getattr__(self, name: str) -> object:
            return getattr(self._inner, name)

    assert [] == plugins.find_breaches(Proxy(HashEmbedder()), Embedder)
    assert ["it has no 'embed'", "it has no 'calibrate'"] == plugins.find_breaches(
        type("Half", (), {"name": "x", "dimensions": 1})(), Embedder
    )
