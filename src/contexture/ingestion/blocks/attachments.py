"""Files that imported blocks link to, such as PDF, office and image files: loaded as documents, linked by their id.

A document has the readers that its block has in the store, so that a page that was locked by hand locks its files too.
"""

import os
import posixpath
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote

from msgspec.structs import replace

from contexture.ingestion.files import FoundFile, LoadProblem, walk_files
from contexture.types import Json
from contexture.workspace import Block, ImportAccess, PutResult

ATTACHMENTS = "attachments"
"""The property of a block that lists the ids of the documents it links to."""

_LINK = re.compile(r"\]\((<[^<>\n]+>|(?:[^()\s]|\([^()\s]*\))+)\)|!?\[\[([^\[\]|#\n]+)(?:[|#][^\[\]\n]*)?\]\]")


class AttachmentLoader(Protocol):
    """Loads files as documents."""

    async def load(
        self, files: Sequence[FoundFile], readers: tuple[str, ...]
    ) -> tuple[Mapping[str, str], Sequence[LoadProblem]]:
        """Load files for these readers; returns the ids of their documents by name, and problems."""
        ...


class BlockSource(Protocol):
    """Reads and writes the blocks of an import."""

    async def put(self, blocks: Sequence[Block], access: ImportAccess) -> PutResult:
        """Write all blocks or none."""
        ...

    async def get(self, ids: Sequence[str]) -> Sequence[Block]:
        """Return the stored blocks with who may read them."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class AttachmentFolder:
    """The files of a source that can be documents, by their path in it."""

    files: Mapping[str, Path]
    by_name: Mapping[str, str] = field(default_factory=dict[str, str])

    def find(self, target: str, folder: str) -> str:
        """Return the path of the file that a link in a folder names; empty if it names none."""
        name = unquote(target.strip("<>"))
        if "://" in name or name.startswith("#"):
            return ""
        for path in (posixpath.normpath(posixpath.join(folder, name)), posixpath.normpath(name)):
            if path in self.files:
                return path
        return self.by_name.get(posixpath.basename(name).casefold(), "") if "/" not in name else ""


def list_attachments(root: Path, suffixes: Collection[str]) -> AttachmentFolder:
    """Return the files below a folder with one of these extensions; none of an archive."""
    if not root.is_dir() or not suffixes:
        return AttachmentFolder(files={})
    base = Path(os.path.realpath(root))
    found: dict[str, Path] = {}
    for leaf in walk_files(root):
        if isinstance(leaf, FoundFile) and leaf.path.suffix.lower().removeprefix(".") in suffixes:
            found[leaf.path.relative_to(root).as_posix()] = leaf.path
    inside = {path: file for path, file in found.items() if Path(os.path.realpath(file)).is_relative_to(base)}
    names: dict[str, str] = {}
    for path in sorted(inside, key=lambda each: (each.count("/"), each), reverse=True):
        names[posixpath.basename(path).casefold()] = path  # the one nearest to the top wins
    return AttachmentFolder(files=inside, by_name=names)


def find_links(text: str) -> Iterator[str]:
    """Yield the targets of the links and embeds of a text."""
    for found in _LINK.finditer(text):
        yield (found[1] or found[2]).strip()


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadedAttachments:
    """The files that were loaded as documents, by their path in the source, and problems."""

    files: frozenset[str] = frozenset()
    problems: Sequence[LoadProblem] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class AttachmentImport:
    """Loads the files that imported blocks link to; `suffixes` are the extensions that can be documents."""

    writer: BlockSource
    loader: AttachmentLoader
    suffixes: Collection[str]

    async def run(self, root: Path, blocks: Iterable[tuple[str, Block]]) -> LoadedAttachments:
        """Load the files of a source; see `load_attachments`."""
        return await load_attachments(self.writer, self.loader, list_attachments(root, self.suffixes), blocks)


async def load_attachments(
    writer: BlockSource,
    loader: AttachmentLoader,
    folder: AttachmentFolder,
    blocks: Iterable[tuple[str, Block]],
) -> LoadedAttachments:
    """Load the files that blocks link to, and write the ids of their documents to the blocks.

    `blocks` are those of an import with the path of their document. A block whose files have not changed is not
    written.
    """
    linked: dict[str, list[str]] = {}
    for path, block in blocks:
        texts = [block.text, *(value for value in block.properties.values() if isinstance(value, str))]
        targets = (folder.find(target, posixpath.dirname(path)) for text in texts for target in find_links(text))
        if files := list(dict.fromkeys(file for file in targets if file)):
            linked[block.id] = files
    if not linked:
        return LoadedAttachments()
    stored = {block.id: block for block in await writer.get(list(linked))}
    wanted: dict[tuple[str, ...], dict[str, None]] = {}
    for id_, block in stored.items():
        wanted.setdefault(_readers(block), {}).update(dict.fromkeys(linked[id_]))
    documents: dict[tuple[tuple[str, ...], str], str] = {}
    problems: list[LoadProblem] = []
    for readers, files in wanted.items():
        found, failed = await loader.load([FoundFile(folder.files[file], file) for file in files], readers)
        documents |= {(readers, file): id_ for file, id_ in found.items()}
        problems += failed
    changed = [
        replace(block, properties={**block.properties, ATTACHMENTS: ids})
        for id_, block in stored.items()
        if (ids := _document_ids(linked[id_], _readers(block), documents)) and ids != block.properties.get(ATTACHMENTS)
    ]
    if changed:
        await writer.put(changed, ImportAccess(unchanged=frozenset(block.id for block in changed)))
    return LoadedAttachments(files=frozenset(file for _, file in documents), problems=problems)


def _document_ids(
    files: Sequence[str], readers: tuple[str, ...], documents: Mapping[tuple[tuple[str, ...], str], str]
) -> list[Json]:
    return [documents[readers, file] for file in files if (readers, file) in documents]


def _readers(block: Block) -> tuple[str, ...]:
    return tuple(sorted(set(block.acl)))
