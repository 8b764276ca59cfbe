"""Creates objects from settings, and is the only package that imports adapters.

Here a name in the settings selects an implementation. The names of this package, which `__init__.pyi` lists, are
imported when they are used, so that asking for one of them loads no other adapter.
"""

from contexture.lazy_names import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
