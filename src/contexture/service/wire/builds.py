"""Recent builds and load reports as routes and `--json` send them."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated, NotRequired

from msgspec import Meta
from typing_extensions import TypedDict

from contexture.capsule import Capsule, CapsuleField
from contexture.ingestion.documents import DocumentsReport, LoadedFile
from contexture.ingestion.files import LoadProblem
from contexture.ingestion.loader import LoadReport
from contexture.ledger import Degradation, Ledger, LedgerEntry
from contexture.results import Timestamp


class BuildLedgerJson(TypedDict):
    """The request and the ledger of a recent build."""

    build_id: str
    request: CapsuleField
    ledger: tuple[LedgerEntry, ...]
    degradations: tuple[Degradation, ...]


class BuildJson(BuildLedgerJson):
    """A recent build."""

    capsule: Capsule


def build_object(build_id: str, capsule: Capsule, ledger: Ledger) -> BuildJson:
    """Return a recent build: its request, its ledger and its capsule."""
    return {**ledger_object(build_id, capsule, ledger), "capsule": capsule}


def ledger_object(build_id: str, capsule: Capsule, ledger: Ledger) -> BuildLedgerJson:
    """Return the request of a recent build, and the outcome of every candidate."""
    return {
        "build_id": build_id,
        "request": capsule.request,
        "ledger": ledger.entries,
        "degradations": ledger.degradations,
    }


class LoadProblemJson(TypedDict):
    """What is wrong with a file, or with one line or row of it."""

    path: str
    line: int | None
    message: str


class LoadReportJson(TypedDict):
    """The outcome of a load, by number of items."""

    read: int
    added: int
    unchanged: int
    duplicates: int
    failed: list[LoadProblemJson]
    warnings: list[LoadProblemJson]
    pages: NotRequired[int]
    files: NotRequired[list[LoadedFile]]
    collapsed: NotRequired[Annotated[int, Meta(description="Articles that are duplicates.")]]


class JobState(StrEnum):
    """The state of a job; the last three are final."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


class IngestJobJson(TypedDict):
    """A job: its state, what it has loaded so far, and how many passages you may read still have no vectors."""

    job_id: str
    state: JobState
    created_at: Timestamp
    items: int
    report: LoadReportJson
    error: str
    unembedded: int


def load_report_object(report: LoadReport) -> LoadReportJson:
    """Return the outcome of everything that was read; for files with pages, of each file too."""
    answer: LoadReportJson = {
        "read": report.read,
        "added": report.added,
        "unchanged": report.unchanged,
        "duplicates": report.duplicates,
        "failed": _problem_objects(report.failed),
        "warnings": _problem_objects(report.warnings),
    }
    return {**answer, "pages": report.pages, "files": report.files} if isinstance(report, DocumentsReport) else answer


def _problem_objects(found: Sequence[LoadProblem]) -> list[LoadProblemJson]:
    return [{"path": each.path, "line": each.line or None, "message": each.message} for each in found]
