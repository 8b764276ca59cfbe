"""`contexture tokens`: how many tokens a text costs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from contexture.cli.common import Common, command
from contexture.cli.inputs import decoded, read_bytes
from contexture.cli.output import emit, say
from contexture.errors import InvalidRequest


def register(app: typer.Typer) -> None:
    """Add the command."""
    command(app, "tokens")(tokens)


def tokens(
    common: Common,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Text to count; `-` for standard input.")],
    encoding: Annotated[
        str | None, typer.Option("--encoding", "--model", metavar="NAME", help="Encoding or model; else the setting.")
    ] = None,
    jsonl: Annotated[bool, typer.Option("--jsonl", help="Count the `text` of each row of a JSONL file.")] = False,
) -> None:
    """Count the tokens of FILE, as a model will."""
    from contexture.adapters.tokens.models import counter_for

    counter = counter_for(common.settings().model if encoding is None else encoding)
    data = read_bytes(file)
    texts = list(_texts(data, file)) if jsonl else [decoded(data, str(file))]
    counts = [counter.count(text) for text in texts]
    if common.as_json:
        emit({"counts": counts, "encoding": counter.encoding, "exact": counter.exact})
        return
    for count in counts:
        say(f"{count}")


def _texts(data: bytes, file: Path) -> Iterator[str]:
    from contexture.ingestion.jsonl import parse_row

    for number, line in enumerate(data.removeprefix(b"\xef\xbb\xbf").split(b"\n"), start=1):
        if not line.strip():
            continue
        try:
            text = parse_row(line).get("text")
        except InvalidRequest as failure:
            raise InvalidRequest(f"{file}:{number}: {failure}") from failure
        if not isinstance(text, str):
            raise InvalidRequest(f"{file}:{number}: field 'text' must be a text")
        yield text
