"""Doubles of the ports, and conformance suites for adapters; needs the extra `testing`."""

from importlib.util import find_spec

_MISSING = [name for name in ("hypothesis", "pytest", "pytest_asyncio") if find_spec(name) is None]
if _MISSING:
    raise ImportError(f'contexture.testing needs {", ".join(_MISSING)}: pip install "contexture-ai[testing]"')
