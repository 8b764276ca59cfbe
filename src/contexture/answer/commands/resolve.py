"""Evidence checked against the store: what does not resolve is lost, and named."""

from __future__ import annotations

from contexture.answer.commands.memories import MEMORIES
from contexture.answer.commands.reading import Notebook
from contexture.ledger import Trace
from contexture.ports import Index
from contexture.retrieval.citations import verify
from contexture.types import Scope


async def unresolved(index: Index, scope: Scope, notebook: Notebook, trace: Trace) -> frozenset[int]:
    """Numbers of the evidence that the scope cannot find in the store as it was cited.

    What a memory service has just given is taken as it is: that service may keep it elsewhere.
    """
    numbers = {each.citation: each.number for each in notebook.evidence if each.citation.collection != MEMORIES}
    problems = await verify(index, scope, list(numbers)) if numbers else []
    for problem in problems:
        trace.degraded("evidence", f"[{numbers[problem.citation]}] was left out: {problem.reason}")
    return frozenset(numbers[problem.citation] for problem in problems)
