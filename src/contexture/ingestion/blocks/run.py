"""Imports a source into a workspace, and remembers what it wrote for the next time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from contexture.blocks.workspace import Workspace
from contexture.errors import InvalidRequest
from contexture.ingestion.blocks.detect import Source
from contexture.ingestion.blocks.load import BlockWriter, ImportReport, import_blocks
from contexture.ingestion.blocks.memory import ImportMemory, Remembered
from contexture.ingestion.load import Progress
from contexture.types import Scope
from contexture.workspace import Activity, Block, BlockStore, Put

FOLDER = "imports"
"""Where, below the home of a store, imports remember what they wrote."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkspaceWriter:
    """Writes to a workspace as one scope, at one time."""

    workspace: Workspace
    blocks: BlockStore
    scope: Scope
    now: datetime

    async def put(self, blocks: Sequence[Block]) -> Put:
        """Write all of them or none."""
        return await self.workspace.put(self.scope, blocks, now=self.now)

    async def delete(self, ids: Sequence[str]) -> int:
        """Remove blocks with what stands below them."""
        return await self.workspace.delete(self.scope, ids, now=self.now)

    async def known(self, names: Sequence[str]) -> set[str]:
        """Those of these names of pages and ids of blocks that the scope may read."""
        pages = await self.workspace.find_pages(self.scope, names)
        return {*pages, *(block.id for block in await self.blocks.get(self.scope, names))}

    async def record(self, activity: Sequence[Activity]) -> None:
        """Note who edited and viewed what."""
        await self.workspace.note(self.scope, activity)


async def run_import(
    writer: BlockWriter,
    source: Source,
    *,
    tenant: str,
    memory: ImportMemory,
    name: str = "",
    again: bool = False,
    progress: Progress | None = None,
) -> ImportReport:
    """Import a source under a name, by default that of its folder or file; the same again writes nothing.

    Two sources of one name would take each other's pages for their own, so the second is refused while the first
    is still where it was.
    """
    root, called = _place(source.path, name)
    before = memory.read(tenant, called)
    _check_moved(called, before, root)
    done = await import_blocks(
        writer, source.read(), source=called, root=root, before=before, again=again, progress=progress
    )
    memory.write(tenant, called, done.remembered)
    return done.report


def _place(path: Path, name: str) -> tuple[str, str]:
    if not path.exists():
        raise InvalidRequest(f"there is no file or folder {str(path)!r}")
    real = path.resolve()
    return str(real), name or real.name


def _check_moved(called: str, before: Remembered | None, root: str) -> None:
    if before is not None and before.root != root and Path(before.root).exists():
        told = f"{called!r} names {before.root!r}, which was imported before"
        raise InvalidRequest(f"{told}; choose another name with --source")
