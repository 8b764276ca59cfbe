"""Writes many blocks in bounded pieces, parents before children, so that readers of the workspace get their turn.

A piece is all or nothing; if it is refused, its blocks are written one by one and each refusal is reported.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from datetime import datetime

from contexture.blocks.workspace import Workspace
from contexture.errors import RedactionFailed, RequestError
from contexture.ingestion.files import LoadProblem
from contexture.ingestion.loader import LoadReport
from contexture.types import Scope
from contexture.workspace import Block, ImportAccess

PIECE_SIZE = 64
"""Maximum number of blocks in one transaction."""

_MAX_PIECE_CHARACTERS = 50_000

BLOCKS_FIELD = "blocks"
"""Name of the request's list in problems; `line` is the position of the block in it, from 1."""


class BulkWriter:
    """Writes blocks for one scope with one timestamp; changed blocks count as added in the report.

    A block whose parent is in the same write and was refused is not written, so it never gets the readers of another
    place. Of several blocks with one id the first is kept. Between two pieces it waits for as long as the first took:
    half of the time is left to builds.
    """

    def __init__(
        self,
        workspace: Workspace,
        scope: Scope,
        *,
        now: datetime,
        importing: ImportAccess | None = None,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self.report = LoadReport()
        self._workspace = workspace
        self._scope = scope
        self._now = now
        self._importing = importing
        self._sleep = sleep
        self._lines: dict[str, int] = {}
        self._refused: set[str] = set()

    async def write_all(self, blocks: Sequence[Block]) -> LoadReport:
        """Write these blocks piece by piece, and return the report, which grows meanwhile."""
        spent = 0.0
        for piece in _split(self._parents_first(self._drop_repeated(blocks))):
            if spent:
                await self._sleep(spent)  # half of the time is left to others
            began = time.perf_counter()
            self.report.read += len(piece)
            await self._write(piece)
            spent = time.perf_counter() - began
        return self.report

    def _drop_repeated(self, blocks: Sequence[Block]) -> list[Block]:
        kept: list[Block] = []
        for line, block in enumerate(blocks, start=1):
            first = self._lines.setdefault(block.id, line)
            if first == line:
                kept.append(block)
            else:
                message = f"block {block.id!r} is already {BLOCKS_FIELD}[{first - 1}]; the first is kept"
                self.report.read += 1
                self.report.failed.append(LoadProblem(path=BLOCKS_FIELD, line=line, message=message))
        return kept

    def _parents_first(self, blocks: Sequence[Block]) -> Iterator[Block]:
        """Yield each block after its parent; those that would be below themselves are reported."""
        waiting = {block.id: block for block in blocks}
        below: dict[str, list[Block]] = {}
        for block in blocks:
            if block.parent in waiting:
                below.setdefault(block.parent, []).append(block)
        stack = [block for block in reversed(blocks) if block.parent not in waiting]
        while stack:
            block = stack.pop()
            del waiting[block.id]
            yield block
            stack.extend(reversed(below.get(block.id, ())))
        self.report.read += len(waiting)
        for block in waiting.values():
            self._refuse(block, f"block {block.id!r} would become its own descendant, or is below one that would")

    async def _write(self, piece: Sequence[Block]) -> None:
        ready = [block for block in piece if self._has_parent(block)]
        if not ready:
            return
        try:
            done = await self._workspace.put(self._scope, ready, now=self._now, importing=self._importing)
        except (RequestError, RedactionFailed) as refusal:
            if len(ready) == 1:
                self._refuse(ready[0], str(refusal).removeprefix(f"{BLOCKS_FIELD}[0]: "))
                return
            for block in ready:
                await self._write([block])
            return
        self.report.added += done.added + done.changed
        self.report.unchanged += done.unchanged
        self._warn(done.kept_readers, "keeps its readers, because an import never lets more people read a block")
        self._warn(done.narrowed, "may be read by fewer people than before")

    def _has_parent(self, block: Block) -> bool:
        if block.parent not in self._refused:
            return True
        self._refuse(block, f"block {block.id!r} was not written, because its parent {block.parent!r} was refused")
        return False

    def _refuse(self, block: Block, message: str) -> None:
        self._refused.add(block.id)
        self.report.failed.append(LoadProblem(path=BLOCKS_FIELD, line=self._lines[block.id], message=message))

    def _warn(self, ids: Sequence[str], said: str) -> None:
        for name in ids:
            message = f"block {name!r} {said}"
            problem = LoadProblem(path=BLOCKS_FIELD, line=self._lines[name], message=message, warning=True)
            self.report.warnings.append(problem)


def _split(blocks: Iterable[Block]) -> Iterator[list[Block]]:
    """Yield up to `PIECE_SIZE` blocks at a time, fewer if they are long."""
    piece: list[Block] = []
    characters = 0
    for block in blocks:
        piece.append(block)
        characters += len(block.text)
        if len(piece) >= PIECE_SIZE or characters >= _MAX_PIECE_CHARACTERS:
            yield piece
            piece, characters = [], 0
    if piece:
        yield piece
