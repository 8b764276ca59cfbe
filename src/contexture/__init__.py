"""Contexture: the context builder for LLM applications.

The names of this package are imported when they are used, so that `contexture --help` loads neither models nor the
index. `__init__.pyi` lists them.
"""

from contexture.lazy_names import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
