"""Builds the wheel twice, installs it alone and with extras, and runs the first steps of a new user there.

Prints the number of packages and their size by their RECORD files, and fails when the base install is larger than
promised. It downloads packages, so it is not a test; `.ci/run` calls it.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
MAX_PACKAGES = 50
MAX_MEGABYTES = 330
COUNT = """
import importlib.metadata as metadata
found = [each for each in metadata.distributions() if each.name not in ("pip", "setuptools")]
print(len(found), round(sum(file.size or 0 for each in found for file in each.files or ()) / 1e6))
"""
EXAMPLE = """
import contexture
from contexture import Record

with contexture.open_sync("store") as ctx:
    ctx.add([Record(id="pump", text="Viktor repairs the pump.", acl=("public",))])
    print(ctx.build("Who repairs the pump?").context.messages[1]["content"])
"""


def main() -> None:
    """Run every check; the first that fails ends the script."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        wheel = build_wheel(folder / "first")
        if digest(wheel) != digest(build_wheel(folder / "second")):
            sys.exit("check_wheel: two builds of the wheel differ")
        bare = install(folder / "bare", str(wheel))
        packages, megabytes = map(int, run(folder, bare / "python", "-c", COUNT).split())
        print(f"check_wheel: {packages} packages, {megabytes} MB")
        if packages > MAX_PACKAGES or megabytes > MAX_MEGABYTES:
            sys.exit(f"check_wheel: the limits are {MAX_PACKAGES} packages and {MAX_MEGABYTES} MB")
        if "Viktor repairs the pump." not in run(folder, bare / "python", "-c", EXAMPLE):
            sys.exit("check_wheel: the example of the README did not find its record")
        shown = run(folder, bare / "contexture", "--home", "demo", "demo", "--no-serve")
        if "contexture-ai[documents]" not in " ".join(shown.split()):
            sys.exit("check_wheel: the demonstration did not name the extra it lacks")
        full = install(folder / "full", f"{wheel}[documents,service]")
        if "were skipped" in run(folder, full / "contexture", "--home", "whole", "demo", "--no-serve"):
            sys.exit("check_wheel: the demonstration skipped documents in spite of the extra")
        print("check_wheel: passed")


def build_wheel(folder: Path) -> Path:
    """Build a wheel from the source folder."""
    run(ROOT, sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, ROOT)
    return next(folder.glob("*.whl"))


def digest(path: Path) -> str:
    """The SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def install(folder: Path, requirement: str) -> Path:
    """Install a requirement with pinned versions into a new environment, and return its folder of programs."""
    venv.create(folder, with_pip=True)
    pip = (folder / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    run(folder, *pip, "--constraint", ROOT / "requirements.lock", requirement)
    return folder / "bin"


def run(folder: Path, *words: str | Path) -> str:
    """Run a program in a folder, away from the source, and return what it prints."""
    unset = {"PYTHONPATH", "VIRTUAL_ENV"}
    hidden = {name: value for name, value in os.environ.items() if name not in unset}  # noqa: TID251 - passed on
    done = subprocess.run(list(map(str, words)), cwd=folder, env=hidden, text=True, capture_output=True, check=False)  # noqa: S603
    if done.returncode:
        sys.exit(f"check_wheel: {' '.join(map(str, words[:4]))} failed: {done.stderr[-2_000:]}{done.stdout[-2_000:]}")
    return done.stdout


if __name__ == "__main__":
    main()
