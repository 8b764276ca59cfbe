"""Every module of the package but adapters can be imported; the tests of an adapter import it."""

import subprocess
import sys
from pathlib import Path

import contexture

# What an extra brings may be missing; any other error is one of the module, such as an annotation that names a
# later class in a module that does not postpone its annotations.
IMPORT_ALL = """
import importlib, sys
failed = {}
for name in sys.argv[1:]:
    try:
        importlib.import_module(name)
    except ImportError:
        pass
    except Exception as failure:
        failed[name] = repr(failure)
print(failed)
"""


def test_every_module_can_be_imported():
    """Annotations that are evaluated at import name what is there."""
    package = Path(contexture.__file__).parent
    names = [
        ".".join(("contexture", *path.relative_to(package).with_suffix("").parts)).removesuffix(".__init__")
        for path in sorted(package.rglob("*.py"))
        if path.name != "__main__.py" and not {"adapters", "examples"} & set(path.parts)
    ]
    command = [sys.executable, "-c", IMPORT_ALL, *names]
    found = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)

    assert found.stdout.splitlines()[-1] == "{}"
