"""Documents: a focused or included page, or block with its subtree, shown as one Markdown text in document order.

`fit_document` shows as much of a document as fits, the parts nearest the question first, and states what it leaves out.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from msgspec import Struct

from contexture.builders.workspace._render import count_body, shorten_candidate, shorten_path
from contexture.builders.workspace.request import ContextPlan, DocumentNode, DocumentPlan
from contexture.pipeline.fence import PromptFence, safe_label
from contexture.pipeline.truncation import score_sentences
from contexture.ports import TokenCounter
from contexture.types import Candidate, Form, Variant
from contexture.workspace import Block, BlockType

SUBPAGE_TYPES = (BlockType.PAGE, BlockType.DB)
"""Block types that a document shows as a title with one line; they are documents of their own."""

_INDENT = "  "
_MAX_INDENT = 12  # levels; deeper blocks are indented like those
_MAX_DEPTH = 100  # levels; deeper blocks are treated as siblings
_SHIFT, _MAX_LEVEL = 3, 6  # headings stand below the prompt's own, which are `##` and `###`
_DEFAULT_LEVEL = 2
_LINE_TOKENS = 2  # estimated cost of the indentation and line break of a block
_MARK_TOKENS = 24  # estimated cost of a line that says what is left out
_GAP_TOKENS = 16  # of blocks left out that cost no more than the line that would say so
_OUTLINE_SHARE, _OUTLINE_CHARS = 0.02, 130  # of the room of a document and at least, for names of what is left out
_TOKEN_CHARS, _COUNT_CHARS = 4, 7
_MAX_NAMED = 8  # headings named in one line about what is left out
_NAME_CHARS, _SHORT_NAME_CHARS = 60, 40
_SUBPAGE_CHARS = 160  # characters of the summary line of a subpage
_FOUND_BONUS, _ANCHOR_BONUS = 0.5, 4.0
_LIST_TYPES = frozenset(
    map(
        str,
        (
            BlockType.BULLETED,
            BlockType.NUMBERED,
            BlockType.TODO,
            BlockType.KANBAN_CARD,
            BlockType.TOGGLE,
            *SUBPAGE_TYPES,
        ),
    )
)


@dataclass(frozen=True, kw_only=True, slots=True)
class CollectedDocument:
    """A document as read from the store: its root, the blocks below it in order, and whether more of it exists.

    It is `included` by a hint, or else the focus.
    """

    section: str
    root: Block
    below: Sequence[Block]
    cut: bool = False
    included: bool = False


class FittedDocument(Struct, frozen=True, kw_only=True):
    """The text of a document, the variant shown per block id, and how many of its blocks are left out."""

    text: str
    shown: Mapping[str, Variant]
    left_out: int
    title: str = ""

    @property
    def tokens(self) -> int:
        """Tokens of everything shown."""
        return sum(variant.tokens for variant in self.shown.values())


def plan_document(document: CollectedDocument, keys: Collection[str], anchor: str = "") -> DocumentPlan:
    """The tree of a document; blocks whose id is not among `keys`, because hints exclude them, are left out of it.

    A heading owns the siblings that follow it up to the next heading of its level, as in Markdown. `anchor` is the id
    of the block where the user is.
    """
    nodes: list[DocumentNode] = []
    depths: list[int] = []
    places: dict[str, int] = {}
    open_headings: dict[str, list[tuple[int, int]]] = {}
    for block in (document.root, *document.below):
        if block.id not in keys:
            continue
        is_root = not nodes
        above = -1 if is_root else places.get(block.parent or "", 0)
        level = _heading_level(block) if block.type is BlockType.HEADING else 0
        if not is_root:
            above = _find_owner(open_headings.setdefault(block.parent or "", []), above, level, len(nodes))
            above = nodes[above].parent if depths[above] >= _MAX_DEPTH else above
        places[block.id] = len(nodes)
        depths.append(0 if is_root else depths[above] + 1)
        nodes.append(
            DocumentNode(
                key=block.id,
                parent=above,
                indent=_indent(nodes[above]) if above >= 0 else 0,
                level=min(level + _SHIFT, _MAX_LEVEL) if level else 0,
                subpage=not is_root and block.type in SUBPAGE_TYPES,
                nests=block.type not in (BlockType.PAGE, BlockType.HEADING, BlockType.DB),
                anchor=block.id == anchor,
            )
        )
    return DocumentPlan(section=document.section, nodes=tuple(nodes), cut=document.cut)


def _find_owner(headings: list[tuple[int, int]], parent: int, level: int, at: int) -> int:
    """The node that a block belongs to: the open heading of its siblings, else its parent; `level` 0 is no heading."""
    if level:
        while headings and headings[-1][0] >= level:
            headings.pop()
    owner = headings[-1][1] if headings else parent
    if level:
        headings.append((level, at))
    return owner


def _indent(parent: DocumentNode) -> int:
    return min(parent.indent + 1, _MAX_INDENT) if parent.nests else parent.indent


def _heading_level(block: Block) -> int:
    level = block.properties.get("level")
    return min(max(int(level), 1), _MAX_LEVEL) if isinstance(level, int | float) else _DEFAULT_LEVEL


def fit_document(
    document: DocumentPlan,
    candidates: Mapping[str, Candidate],
    room: int,
    plan: ContextPlan,
    counter: TokenCounter,
    fence: PromptFence,
    found: Mapping[str, float],
    *,
    path_share: float = 1.0,
) -> FittedDocument:
    """As much of a document as `room` tokens hold, in document order.

    When not all of it fits, the sections nearest the question come first; a block is shown only below its shown
    parents. What is left out is named where it would stand. `found` has, by block id, the relevance that the search
    gave to some of its blocks. Of a path that is longer than `path_share` of the text, nothing is shown.
    """
    fitter = _DocumentFitter(document, candidates, plan, counter, fence, found, path_share)
    return fitter.fit(room)


class _DocumentFitter:
    """Chooses the blocks of one document and renders them."""

    def __init__(
        self,
        document: DocumentPlan,
        candidates: Mapping[str, Candidate],
        plan: ContextPlan,
        counter: TokenCounter,
        fence: PromptFence,
        found: Mapping[str, float],
        path_share: float,
    ) -> None:
        self._document = document
        self._path_share = path_share
        self._nodes = document.nodes
        self._plan = plan
        self._counter = counter
        self._fence = fence
        self._found = found
        self._candidates = [candidates.get(node.key) for node in self._nodes]
        self._texts = [
            "" if each is None else _shown_text(node, each, fence)
            for node, each in zip(self._nodes, self._candidates, strict=True)
        ]
        self._cuts: dict[int, Variant] = {}
        self._outline_chars = self._outline_left = 0.0
        self._costs = [self._count_node(at) for at in range(len(self._nodes))]
        self._children: list[list[int]] = [[] for _ in self._nodes]
        for at, node in enumerate(self._nodes):
            if node.parent >= 0:
                self._children[node.parent].append(at)
        self._sizes = self._count_subtrees()
        self._ends = [at + 1 for at in range(len(self._nodes))]
        for at in range(len(self._nodes) - 1, 0, -1):
            above = self._nodes[at].parent
            self._ends[above] = max(self._ends[above], self._ends[at])

    def fit(self, room: int) -> FittedDocument:
        """The document in at most `room` tokens; without text when not even its title fits."""
        everything = frozenset(range(len(self._nodes)))
        self._outline_chars = _OUTLINE_CHARS + _OUTLINE_SHARE * _TOKEN_CHARS * room
        if not self._nodes or self._candidates[0] is None:
            return FittedDocument(text="", shown={}, left_out=len(self._nodes))
        if sum(self._costs) <= room + len(self._nodes):
            whole = self._render(everything)
            if self._counter.count(whole) <= room:
                return self._make_result(whole, everything)
        if self._costs[0] > room and (cut := self._shorten(0, room - 2 * _MARK_TOKENS)) is not None:
            self._cuts[0] = cut
            self._costs[0] = cut.tokens
        order = self._choose(room - self._costs[0] - 2 * _MARK_TOKENS)
        while True:
            text = self._render(frozenset(order))
            over = self._counter.count(text) - room
            if over <= 0:
                return self._make_result(text, frozenset(order))
            if len(order) <= 1:
                return self._make_empty(room)
            self._drop_last(order, over)

    def _make_empty(self, room: int) -> FittedDocument:
        """Nothing of the document, and a line that says so if it fits."""
        line = f"(“{self._title()}”, {len(self._nodes)} blocks, does not fit here.)"
        text = line if self._counter.count(line) <= room else ""
        return FittedDocument(text=text, shown={}, left_out=len(self._nodes), title=self._title())

    def _drop_last(self, order: list[int], over: int) -> None:
        """Remove the blocks chosen last until about `over` tokens are saved; the root stays."""
        saved = 0
        while len(order) > 1 and saved < over:
            saved += self._costs[order.pop()]

    def _choose(self, room: int) -> list[int]:
        """The nodes to show, the root first, each after its parent."""
        scores = self._score_subtrees()
        order = [0]
        left = self._take_children(0, room, scores, order)
        if self._plan.is_compact:
            self._fill_gaps(left, order)
        return order

    def _fill_gaps(self, room: int, order: list[int]) -> None:
        """Add what is left out between shown blocks and costs no more than the line that would say so."""
        chosen = set(order)
        for parent in sorted(chosen):
            for gap in self._find_gaps(parent, chosen):
                cost = sum(self._sizes[at] for at in gap)
                if cost <= min(_GAP_TOKENS, room):
                    order += [each for at in gap for each in self._subtree(at)]
                    room -= cost

    def _find_gaps(self, parent: int, chosen: Collection[int]) -> Iterator[list[int]]:
        """The runs of neighbouring blocks below a node that are left out."""
        run: list[int] = []
        for at in self._children[parent]:
            if at not in chosen:
                run.append(at)
            elif run:
                yield run
                run = []
        if run:
            yield run

    def _take_children(self, parent: int, room: int, scores: Sequence[float], order: list[int]) -> int:
        """Add the best subtrees below a node that fit, whole or in part; returns the room that is left."""
        for at in sorted(self._children[parent], key=lambda each: (-scores[each], each)):
            if self._sizes[at] <= room:
                order += self._subtree(at)
                room -= self._sizes[at]
            elif self._costs[at] + (_MARK_TOKENS if self._children[at] else 0) <= room:
                order.append(at)
                room = self._take_children(at, room - self._costs[at] - _MARK_TOKENS, scores, order)
            elif (cut := self._shorten(at, room)) is not None:
                self._cuts[at] = cut
                order.append(at)
                room -= cut.tokens
        return room

    def _shorten(self, at: int, room: int) -> Variant | None:
        """A block that is too long, shortened to what is left; None when too little of it would remain."""
        candidate, node = self._candidates[at], self._nodes[at]
        if candidate is None or node.level or node.subpage or (at == 0 and not node.nests):
            return None
        whole = Variant(form=Form.FULL, text=self._texts[at], tokens=self._costs[at], value=1.0)
        return shorten_candidate(candidate, whole, room, self._plan, self._counter, self._fence)

    def _subtree(self, at: int) -> range:
        """A node and everything below it: neighbours, because nodes are in document order."""
        return range(at, self._ends[at])

    def _score_subtrees(self) -> list[float]:
        """The best score within each subtree; without a match earlier ones score higher."""
        scores = score_sentences(self._texts, self._plan.query)
        best = max(scores, default=0.0) or 1.0
        own = [
            score / best
            + _FOUND_BONUS * (0.0 if candidate is None else self._found.get(candidate.key, 0.0))
            + _ANCHOR_BONUS * node.anchor
            for score, candidate, node in zip(scores, self._candidates, self._nodes, strict=True)
        ]
        for at in range(len(own) - 1, 0, -1):
            parent = self._nodes[at].parent
            own[parent] = max(own[parent], own[at])
        return own

    def _count_subtrees(self) -> list[int]:
        """Tokens of each node with everything below it."""
        sizes = list(self._costs)
        for at in range(len(sizes) - 1, 0, -1):
            sizes[self._nodes[at].parent] += sizes[at]
        return sizes

    def _count_node(self, at: int) -> int:
        """Tokens of a node with its indentation; the root also pays for the header."""
        candidate, node = self._candidates[at], self._nodes[at]
        if candidate is None or not self._texts[at]:
            return 0
        if at == 0:
            return self._counter.count(self._render_root(candidate)) + _LINE_TOKENS
        body = (
            self._counter.count(self._texts[at]) if node.subpage else count_body(candidate, self._counter, self._fence)
        )
        lines = self._texts[at].count("\n") + 1
        return body + lines * ((1 if node.indent else 0) + 1) + (1 if node.level else 0)

    def _key(self, at: int) -> str:
        return self._nodes[at].key

    def _title(self) -> str:
        root = self._candidates[0]
        return "" if root is None else root.title

    def _make_result(self, text: str, chosen: frozenset[int]) -> FittedDocument:
        shown: dict[str, Variant] = {}
        for at in sorted(chosen):
            if not self._texts[at]:
                continue
            cut = self._cuts.get(at)
            tokens = self._costs[at] if cut is None else cut.tokens
            shown[self._key(at)] = cut or Variant(form=Form.FULL, text=self._texts[at], tokens=tokens, value=0.0)
        extra = self._counter.count(text) - sum(variant.tokens for variant in shown.values())
        first = self._key(0)
        root = shown[first]
        shown[first] = Variant(form=root.form, text=root.text, tokens=max(1, root.tokens + extra), value=0.0)
        return FittedDocument(text=text, shown=shown, left_out=self._count_left_out(chosen), title=self._title())

    def _count_left_out(self, chosen: frozenset[int]) -> int:
        return sum(self._is_missing(at) for at in range(len(self._nodes)) if at not in chosen or self._is_unshown(at))

    def _is_missing(self, at: int) -> bool:
        """Whether a node has something to show; a divider or an empty line is never missed."""
        return bool(self._texts[at]) or self._is_unshown(at)

    def _is_unshown(self, at: int) -> bool:
        """Whether a block cannot be shown at all, because it could not be redacted."""
        return self._candidates[at] is None

    def _render(self, chosen: frozenset[int]) -> str:
        root = self._candidates[0]
        if root is None:
            return ""
        self._outline_left = self._outline_chars
        lines = [self._render_root(root)]
        missing = self._count_left_out(chosen)
        is_told = self._path_share >= 1 or not self._plan.is_compact  # around a hit, the marks alone tell it
        if (missing and is_told) or self._document.cut:
            lines.append(self._render_counts(len(self._nodes) - missing))
        lines += self._render_children(0, chosen, kind="")
        if self._document.cut and not self._plan.is_compact:
            lines.append(f"(The rest of it, after these {len(self._nodes)} blocks, is not shown.)")
        return "\n".join(lines)

    def _render_counts(self, shown: int) -> str:
        if self._document.cut and self._plan.is_compact:
            known = len(self._nodes)
            return f"({shown} of the first {known} blocks are shown, nearest the question; none after these.)"
        if self._document.cut:
            return f"({shown} blocks of more than {len(self._nodes)} are shown, those nearest the question first.)"
        return f"({shown} of {len(self._nodes)} blocks are shown, those nearest the question first, in their order.)"

    def _render_root(self, root: Candidate) -> str:
        label = f"[{root.title}] [{root.kind}]" if root.title else f"[{root.kind}]"
        header = f"{self._fence.inline(label)}\n"
        path = self._render_path(root)
        header += f"({path})\n" if path else ""
        if root.kind not in (BlockType.PAGE, BlockType.DB):
            cut = self._cuts.get(0)
            return header + (self._fence.block(root.text) if cut is None else cut.text)
        return (header + self._fence.block(root.text.partition("\n")[2])).rstrip("\n")

    def _render_path(self, root: Candidate) -> str:
        """The path of the root; around a hit only its end on the page, where that is short beside the text."""
        if self._path_share >= 1:
            return "" if root.label == root.title else root.label
        path = shorten_path(root.title, root.label)
        return path if len(path) <= self._path_share * sum(map(len, self._texts)) else ""

    def _render_children(self, parent: int, chosen: frozenset[int], kind: str) -> Iterator[str]:
        """The lines of the shown blocks below a node, with a line for every run of blocks left out."""
        left_out: list[int] = []
        for at in self._children[parent]:
            if at not in chosen or self._is_unshown(at):
                left_out.append(at)
                continue
            yield from self._render_left_out(left_out)
            left_out = []
            node, candidate = self._nodes[at], self._candidates[at]
            shown_kind = candidate.kind if candidate is not None else ""
            if self._texts[at]:
                if not (kind in _LIST_TYPES and shown_kind in _LIST_TYPES) and not node.indent and kind:
                    yield ""
                yield self._render_node(at)
                kind = shown_kind
            yield from self._render_children(at, chosen, kind)
        yield from self._render_left_out(left_out)

    def _render_node(self, at: int) -> str:
        node = self._nodes[at]
        cut = self._cuts.get(at)
        text = self._texts[at] if cut is None else cut.text
        if node.level:
            return f"{'#' * node.level} {text}"
        return indent_lines(text, node.indent)

    def _render_left_out(self, nodes: Sequence[int]) -> Iterator[str]:
        """One line for neighbouring subtrees that are left out: sections by name, with how many blocks each has."""
        counts = {at: sum(self._is_missing(each) for each in self._subtree(at)) for at in nodes}
        missing = sum(counts.values())
        if not missing:
            return
        named = self._choose_names(nodes)
        names = [f"{self._name(at)} ({counts[at]})" for at in named]
        others = missing - sum(counts[at] for at in named)
        if names and others:
            names.append(f"{others} more")
        where = f": {', '.join(names)}" if names else ""
        blocks = "1 block is" if missing == 1 else f"{missing} blocks are"
        said = f"{missing} left out" if self._plan.is_compact else f"{blocks} left out here"
        yield f"{_INDENT * self._nodes[nodes[0]].indent}(… {said}{where})"

    def _choose_names(self, nodes: Sequence[int]) -> list[int]:
        """The first sections and subpages that are left out, as many as the outline has room for."""
        named = [at for at in nodes if self._nodes[at].level or self._nodes[at].subpage][:_MAX_NAMED]
        if not self._plan.is_compact:
            return named
        chosen: list[int] = []
        for at in named:
            self._outline_left -= len(self._name(at)) + _COUNT_CHARS
            if self._outline_left < 0:
                break
            chosen.append(at)
        return chosen

    def _name(self, at: int) -> str:
        candidate = self._candidates[at]
        if candidate is None:
            return "untitled"
        text = candidate.title if self._nodes[at].subpage else candidate.text
        limit = _SHORT_NAME_CHARS if self._plan.is_compact else _NAME_CHARS
        return safe_label(text, limit) or "untitled"


def _shown_text(node: DocumentNode, candidate: Candidate, fence: PromptFence) -> str:
    """The text of a block as it is shown, without indentation."""
    if node.subpage:
        return _render_subpage(candidate, fence)
    if node.level:
        return fence.block(" ".join(candidate.text.split()))
    return fence.block(candidate.text) if candidate.text.strip() else ""


def _render_subpage(candidate: Candidate, fence: PromptFence) -> str:
    """A page or database inside a document: its title, and one line about it."""
    first, _, rest = candidate.text.strip().partition("\n")
    if candidate.kind == BlockType.DB:
        about = ", ".join(line.partition(":")[0] for line in rest.split("\n") if line)
        about = f"columns {about}" if about else ""
    else:
        about = "" if first == candidate.title else first
    if len(about) > _SUBPAGE_CHARS:
        about = about[:_SUBPAGE_CHARS].rsplit(" ", 1)[0] + " …"
    kind = "database" if candidate.kind == BlockType.DB else "page"
    return fence.block(f"- **{candidate.title or 'Untitled'}** ({kind}){': ' if about else ''}{about}")


def indent_lines(text: str, depth: int) -> str:
    """A text with every line indented by `depth` levels."""
    if not depth:
        return text
    mark = _INDENT * depth
    return "\n".join(f"{mark}{line}" if line else line for line in text.split("\n"))
