"""Runs the tests that use other libraries' clients with the current releases of those, each in its own environment.

An environment has the packages of `.venv` below those that are installed here. It downloads packages, so it is not a
test; `.ci/run` calls it.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
CLIENTS = {
    "openai": (("openai",), ("tests/service/test_openai_clients.py", "-k", "not langchain and not llamaindex")),
    "langchain": (
        ("langchain-core", "langchain-openai"),
        ("tests/service/test_openai_clients.py", "tests/integrations/test_retrievers.py", "-k", "langchain"),
    ),
    "llamaindex": (
        ("llama-index-core", "llama-index-llms-openai-like"),
        ("tests/service/test_openai_clients.py", "tests/integrations", "-k", "llamaindex or node"),
    ),
    "haystack": (("haystack-ai",), ("tests/integrations/test_retrievers.py", "-k", "haystack")),
    "mcp": (("mcp",), ("tests/protocol",)),
}
"""By name, the packages of a client and the tests that use them."""


def main() -> None:
    """Check every client; fail at the end if one did."""
    failed = [name for name, (packages, tests) in CLIENTS.items() if not check(name, packages, tests)]
    if failed:
        sys.exit(f"check_clients: {', '.join(failed)} failed")
    print("check_clients: passed")


def check(name: str, packages: tuple[str, ...], tests: tuple[str, ...]) -> bool:
    """Whether the tests of a client pass with its current release; a test that is skipped counts as failed."""
    with tempfile.TemporaryDirectory() as place:
        python = make_environment(Path(place))
        installed = run(
            python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--upgrade", *packages
        )
        tested = installed if installed.returncode else run(python, "-m", "pytest", "-v", *tests)
        versions = run(python, "-c", f"import importlib.metadata as m; print(*map(m.version, {packages!r}))").stdout
    counted = re.search(r"(\d+) passed", tested.stdout)
    passed = tested.returncode == 0 and counted is not None and "SKIPPED" not in tested.stdout
    print(f"check_clients: {name} ({' '.join(versions.split())}): {counted[0] if passed and counted else 'failed'}")
    if not passed:
        print(tested.stdout[-4_000:], tested.stderr[-2_000:])
    return passed


def make_environment(folder: Path) -> Path:
    """The interpreter of a new environment over the packages of this one."""
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    packages = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").stdout.strip())
    (packages / "base.pth").write_text(f"{sysconfig.get_path('purelib')}\n{ROOT / 'src'}\n")
    return python


def run(python: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run an interpreter in the folder of the project, and return what it printed."""
    unset = {"PYTHONPATH", "VIRTUAL_ENV"}
    hidden = {name: value for name, value in os.environ.items() if name not in unset}  # noqa: TID251 - passed on
    return subprocess.run([str(python), *words], cwd=ROOT, env=hidden, text=True, capture_output=True, check=False)  # noqa: S603


if __name__ == "__main__":
    main()
