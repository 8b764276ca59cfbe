"""Measures on labelled samples how well a redactor finds personal data and credentials."""

import base64
import json
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from contexture.errors import NotFound
from contexture.ports import Redactor
from contexture.types import Json, Span

MIN_OVERLAP = 0.5

# Type names of the public data set, mapped to our labels; other types are not measured.
GOLD_LABELS = {
    "EMAIL_ADDRESS": "EMAIL",
    "CREDIT_CARD": "CARD",
    "PHONE_NUMBER": "PHONE",
    "IBAN_CODE": "IBAN",
    "IP_ADDRESS": "IP",
    "US_SSN": "SSN",
    "US_DRIVER_LICENSE": "DRIVER_LICENSE",
    "PERSON": "PERSON",
    "GPE": "LOCATION",
    "STREET_ADDRESS": "ADDRESS",
}
SECRET_LABELS = frozenset({"SECRET", "IP"})
PATTERN_TYPES = frozenset(kind for kind, label in GOLD_LABELS.items() if label not in {"PERSON", "LOCATION", "ADDRESS"})
DOTTED_TYPES = frozenset({"EMAIL_ADDRESS", "IP_ADDRESS"})

UNUSUAL_SEPARATORS = (
    "\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000"
    "\u2010\u2011\u2012\u2013\u2014\u2015\u2043\u2212\u2e3a\ufe58\ufe63\uff0d"
)


def replace_separators(rows: Iterable[Mapping[str, Any]], seed: int) -> Iterator[dict[str, Any]]:
    """The rows with every second space, hyphen or dot inside a pattern's span replaced by a Unicode space or dash.

    Dots of e-mail and IP addresses stay. One character replaces one, so the gold spans stay valid. Whether the first or
    the second of a span is replaced, and by which character, is drawn from `seed`.
    """
    draw = random.Random(seed)  # noqa: S311 - a repeatable choice, not a secret
    for row in rows:
        chars = list(row["text"])
        for start, end, kind in row["spans"]:
            if kind in PATTERN_TYPES:
                kept = "" if kind in DOTTED_TYPES else "."
                places = [at for at in range(start, end) if chars[at] in f" -{kept}"]
                for at in places[draw.randrange(2) if len(places) > 1 else 0 :: 2]:
                    chars[at] = draw.choice(UNUSUAL_SEPARATORS)
        yield {**row, "text": "".join(chars)}


def evaluate_pii(rows: Iterable[Mapping[str, Any]], redactor: Redactor) -> dict[str, Json]:
    """Return recall and precision by label over rows with `text` and gold `spans` of `[start, end, type]`.

    A gold span is found if spans of its label cover at least half of it; a predicted span is correct if at least half
    of it is covered by gold spans of its label. Only labels in the gold data are measured; one that is never predicted
    has no precision.
    """
    gold: Counter[str] = Counter()
    found: Counter[str] = Counter()
    predicted: Counter[str] = Counter()
    right: Counter[str] = Counter()
    count = 0
    for row in rows:
        count += 1
        wanted = [Span(start, end, GOLD_LABELS[kind]) for start, end, kind in row["spans"] if kind in GOLD_LABELS]
        given = redactor.scan(row["text"], row.get("lang", "en"))
        gold.update(span.label for span in wanted)
        found.update(span.label for span in wanted if _is_covered(span, given))
        predicted.update(span.label for span in given)
        right.update(span.label for span in given if _is_covered(span, wanted))
    labels: dict[str, Json] = {
        label: {
            "gold": gold[label],
            "found": found[label],
            "recall": _ratio(found[label], gold[label]),
            "predicted": predicted[label],
            "precision": _ratio(right[label], predicted[label]),
        }
        for label in sorted(gold)
    }
    return {"rows": count, "labels": labels}


def evaluate_secrets(rows: Iterable[Mapping[str, Any]], redactor: Redactor) -> dict[str, Json]:
    """Return recall and false positive rate over rows with `should_flag` and a `payload_b64`.

    A sample is flagged if any span is labelled SECRET or IP, because the samples count public addresses as secrets.
    """
    verdicts: Counter[tuple[bool, bool]] = Counter()
    for row in rows:
        text = base64.b64decode(row["payload_b64"]).decode()
        flagged = any(span.label in SECRET_LABELS for span in redactor.scan(text, ""))
        verdicts[bool(row["should_flag"]), flagged] += 1
    positives = verdicts[True, True] + verdicts[True, False]
    negatives = verdicts[False, True] + verdicts[False, False]
    return {
        "positives": positives,
        "recall": _ratio(verdicts[True, True], positives),
        "negatives": negatives,
        "false_positive_rate": _ratio(verdicts[False, True], negatives),
    }


def evaluate_folder(folder: Path, redactor: Redactor, *, seed: int | None = None) -> dict[str, Json]:
    """Return the metrics for the folder's `pii.jsonl` and `samples.jsonl`; raises `NotFound` if it has neither.

    With a seed, separators in the personal data are replaced as by `replace_separators`.
    """
    measured: dict[str, Json] = {"rules": redactor.rules}
    pii, samples = folder / "pii.jsonl", folder / "samples.jsonl"
    if pii.is_file():
        rows = _read_rows(pii)
        measured["pii"] = evaluate_pii(rows if seed is None else replace_separators(rows, seed), redactor)
    if samples.is_file():
        measured["secrets"] = evaluate_secrets(_read_rows(samples), redactor)
    if len(measured) == 1:
        raise NotFound(f"{str(folder)!r} has neither `pii.jsonl` nor `samples.jsonl`")
    return measured


def _read_rows(path: Path) -> list[dict[str, Any]]:
    with path.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines if line.strip()]


def _is_covered(span: Span, others: Sequence[Span]) -> bool:
    same = (other for other in others if other.label == span.label)
    overlap = sum(max(0, min(span.end, other.end) - max(span.start, other.start)) for other in same)
    return overlap >= MIN_OVERLAP * (span.end - span.start)


def _ratio(part: int, whole: int) -> float | None:
    return round(part / whole, 4) if whole else None
