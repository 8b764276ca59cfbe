"""Recent builds on disk, so that they can be explained and replayed later, and what each of them copies."""

import asyncio
import os
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from contexture.adapters.index.disk_space import check_free_space
from contexture.adapters.private_files import create_private_folder
from contexture.capsule import CapsuleReferences, list_references
from contexture.conversation import ErasureTarget
from contexture.errors import NotFound, StoreUnwritable
from contexture.types import Scope

_BUILD_ID = re.compile(r"ctx-[0-9a-f]{12}")


class BuildFolder:
    """Stores the capsules of the last `keep` builds as files, shared fairly between tenants.

    Beyond `keep`, the oldest build of the tenant with the most is deleted, so that nobody's builds push out those of a
    tenant with fewer.
    """

    def __init__(self, folder: Path, keep: int) -> None:
        self._folder = folder
        self._keep = keep
        self._kept: dict[Path, str] | None = None  # tenants, oldest build first
        self._guard = threading.Lock()
        self._catalog = BuildCatalog()

    def save(self, build_id: str, capsule: bytes) -> None:
        """Write one capsule atomically; raises `StoreUnwritable`."""
        if not self._keep:
            return
        path = self._path(build_id)
        check_free_space(self._folder.parent)
        try:
            with self._guard:
                self._write(path, capsule)
                self._prune(path, tenant_of_capsule(capsule))
        except OSError as failure:
            raise StoreUnwritable(f"cannot store build {build_id}: {failure.strerror}") from failure

    def load(self, build_id: str) -> bytes:
        """Capsule of a build; raises `NotFound` for unknown and malformed ids alike."""
        try:
            return self._path(build_id).read_bytes()
        except OSError:
            raise NotFound(f"no build {build_id!r} is stored here") from None

    async def erase(self, scope: Scope, target: ErasureTarget, *, preview: bool = False) -> Sequence[str]:
        """Remove the builds that copy the target's texts; returns their ids."""
        return await asyncio.to_thread(self._erase, scope, target, preview=preview)

    def _erase(self, scope: Scope, target: ErasureTarget, *, preview: bool) -> list[str]:
        with self._guard:
            names = [path.stem for path in self._folder.glob("ctx-*.json")]
            found = self._catalog.find_copies(names, self.load, scope, target)
            for name in () if preview else found:
                path = self._path(name)
                path.unlink(missing_ok=True)
                if self._kept is not None:
                    self._kept.pop(path, None)
        return found

    def _write(self, path: Path, capsule: bytes) -> None:
        create_private_folder(self._folder)
        draft = path.with_suffix(f".{os.getpid()}.draft")
        draft.touch(mode=0o600)
        draft.write_bytes(capsule)
        draft.replace(path)

    def _path(self, build_id: str) -> Path:
        if not _BUILD_ID.fullmatch(build_id):
            raise NotFound(f"no build {build_id!r} is stored here")
        return self._folder / f"{build_id}.json"

    def _prune(self, newest: Path, tenant: str) -> None:
        """Delete builds; the folder is listed once and cached, because listing costs more than writing."""
        if self._kept is None:
            files = sorted(self._folder.glob("ctx-*.json"), key=lambda path: path.stat().st_mtime_ns)
            self._kept = {path: tenant_of_capsule(path.read_bytes()) for path in files}
        self._kept.pop(newest, None)
        self._kept[newest] = tenant
        while len(self._kept) > self._keep:
            ((largest, _),) = Counter(self._kept.values()).most_common(1)
            oldest = next(path for path, owner in self._kept.items() if owner == largest)
            del self._kept[oldest]
            oldest.unlink(missing_ok=True)


class BuildCatalog:
    """What the stored builds copy; each build is read once, when something is erased for the first time after it."""

    def __init__(self) -> None:
        self._references: dict[str, CapsuleReferences | None] = {}

    def find_copies(
        self, names: Iterable[str], load: Callable[[str], bytes], scope: Scope, target: ErasureTarget
    ) -> list[str]:
        """Ids of the builds among `names` that copy texts of the target, sorted."""
        self._references = {name: self._references[name] for name in names if name in self._references} | {
            name: _read_references(name, load) for name in names if name not in self._references
        }
        return sorted(name for name in self._references if self._concerns(name, load, scope, target))

    def _concerns(self, name: str, load: Callable[[str], bytes], scope: Scope, target: ErasureTarget) -> bool:
        known = self._references[name]
        if known is None or known.concerns(scope, target):
            return known is not None
        mine = (known.tenant, known.user) == (scope.tenant, scope.user)
        if target.matches is None or not mine:
            return False
        with suppress(NotFound):
            return target.matches(load(name).decode(errors="replace"))
        return False


def _read_references(name: str, load: Callable[[str], bytes]) -> CapsuleReferences | None:
    with suppress(NotFound):
        return list_references(load(name))
    return None


class _CapsuleTenant(msgspec.Struct):
    """The one field of a capsule that is read here."""

    tenant: str = ""


def tenant_of_capsule(capsule: bytes) -> str:
    """The tenant of a packed capsule; empty if it cannot be read."""
    try:
        return msgspec.json.decode(capsule, type=_CapsuleTenant).tenant
    except msgspec.MsgspecError:
        return ""
