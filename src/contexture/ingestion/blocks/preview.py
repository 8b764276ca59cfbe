"""What an import would write, without writing it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from contexture.blocks.links import database_schema
from contexture.ingestion.blocks.draft import BlockDraft, DraftDocument, walk_drafts
from contexture.ingestion.blocks.import_source import ImportSource
from contexture.ingestion.files import LoadProblem
from contexture.types import Json
from contexture.workspace import Block, BlockType

_ROWS_SHOWN = 3
_CELL_CHARS = 60


@dataclass(frozen=True, kw_only=True, slots=True)
class DocumentPreview:
    """A page or database of a source: its blocks, its readers, and the columns and first rows of a table."""

    path: str
    type: BlockType
    title: str
    blocks: int
    readers: tuple[str, ...] | None
    columns: Mapping[str, Json]
    rows: Sequence[BlockDraft]

    def to_json(self) -> dict[str, Json]:
        """Return it as a JSON object."""
        return {
            "path": self.path,
            "type": str(self.type),
            "title": self.title,
            "blocks": self.blocks,
            "readers": None if self.readers is None else list[Json](self.readers),
            "columns": dict(self.columns),
            "rows": [{"title": row.text, "properties": row.properties} for row in self.rows],
        }

    def list_lines(self) -> Iterator[str]:
        """Yield it as lines of text."""
        readers = "" if self.readers is None else f", readable by {', '.join(self.readers)}"
        below = "rows" if self.type is BlockType.DB else "blocks"
        yield f"{self.path}: {self.type} “{self.title}”, {self.blocks} {below}{readers}"
        if self.columns:
            yield f"  columns: {', '.join(f'{name} ({kind})' for name, kind in self.columns.items())}"
        for row in self.rows:
            cells = "; ".join(f"{name}: {str(value)[:_CELL_CHARS]}" for name, value in row.properties.items())
            yield f"  row: {row.text} | {cells}"


@dataclass(frozen=True, kw_only=True, slots=True)
class SourcePreview:
    """The documents of a source, and the problems of reading it."""

    documents: Sequence[DocumentPreview]
    problems: Sequence[LoadProblem]

    def list_lines(self) -> Iterator[str]:
        """Yield all documents as lines of text."""
        for each in self.documents:
            yield from each.list_lines()


def preview_source(source: ImportSource) -> SourcePreview:
    """Read a source without writing anything; raises `InvalidRequest` as an import does."""
    documents: list[DocumentPreview] = []
    problems: list[LoadProblem] = []
    for item in source.read():
        if isinstance(item, DraftDocument):
            documents.append(_preview_document(item))
        elif isinstance(item, LoadProblem):
            problems.append(item)
    return SourcePreview(documents=documents, problems=problems)


def _preview_document(document: DraftDocument) -> DocumentPreview:
    root = document.root
    is_table = root.type is BlockType.DB
    return DocumentPreview(
        path=document.path,
        type=root.type,
        title=root.text,
        blocks=len(root.children) if is_table else sum(1 for _ in walk_drafts(root)) - 1,
        readers=root.readers,
        columns=database_schema(Block(id="preview", type=root.type, text="", properties=root.properties)),
        rows=root.children[:_ROWS_SHOWN] if is_table else (),
    )
