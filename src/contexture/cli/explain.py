"""`contexture explain`, `replay` and `cite verify`: explain a build, rebuild it, and check its citations.

`replay` rebuilds a capsule byte for byte; `cite verify` resolves citations against the store.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

import typer

from contexture.cli import _common as cli
from contexture.cli._client import find_service, parse_explanation, parse_ledger, to_wire_json
from contexture.cli._output import console, print_json, print_line
from contexture.errors import NotFound

if TYPE_CHECKING:
    from contexture.builders.replay import Explanation
    from contexture.capsule import Capsule
    from contexture.config import Settings
    from contexture.ledger import Ledger


def register_explain(app: typer.Typer) -> None:
    """Add the command to the app."""
    cli.register_command(app, "explain", with_identity=True)(explain)


def explain(
    common: cli.Common,
    build_id: Annotated[str, typer.Argument(metavar="BUILD_ID", help="Printed by `build`.")],
    candidate: Annotated[str | None, typer.Argument(metavar="CANDIDATE", help="One candidate of the build.")] = None,
) -> None:
    """Show why each candidate is in a prompt, or why it is not.

    Prints the ledger of a recent build, or the smallest change that would have admitted one CANDIDATE.
    """
    settings = common.settings()
    if candidate is not None:
        _print_candidate(common, _explain_candidate(settings, build_id, candidate))
        return
    found = _load_ledger(settings, build_id)
    if common.as_json:
        print_json(found)
        return
    from contexture.cli._tables import ledger_view

    request = found["request"]
    question, limit = (
        request.get("query", request.get("user_message")),
        request.get("max_tokens", request.get("max_prompt_tokens")),
    )
    print_line(f"{build_id}: {question!r} in {limit} tokens")
    console().print(ledger_view(parse_ledger(found)))


def _load_ledger(settings: Settings, build_id: str) -> dict[str, Any]:
    service = find_service(settings)
    if service is not None:
        found = service.request("GET", _build_path(build_id))
        return {name: value for name, value in found.items() if name != "capsule"}
    from contexture.service.wire.builds import ledger_object

    capsule, ledger = cli.run_with_engine(
        cli.require_store(settings),
        lambda engine: engine.load_build(build_id),
        action="builds.read",
        resource={"build": build_id},
    )
    return to_wire_json(ledger_object(build_id, capsule, ledger))


def _explain_candidate(settings: Settings, build_id: str, candidate: str) -> dict[str, Any]:
    service = find_service(settings)
    if service is not None:
        return service.request("GET", f"{_build_path(build_id)}/explain/{quote(candidate, safe='')}")
    found = cli.run_with_engine(
        cli.require_store(settings),
        lambda engine: engine.explain(build_id, candidate),
        action="builds.read",
        resource={"build": build_id},
    )
    return found.to_dict()


def _build_path(build_id: str) -> str:
    """Return the path of a build's route; raises `NotFound` for an id with a slash, which would be another path."""
    if not build_id or "/" in build_id:
        raise NotFound(f"no build {build_id!r} is stored here")
    return f"/v1/builds/{quote(build_id, safe='')}"


def _print_candidate(common: cli.Common, answer: dict[str, Any]) -> None:
    if common.as_json:
        print_json(answer)
        return
    from contexture.cli._tables import ledger_table

    found = parse_explanation(answer)
    console().print(ledger_table([found.entry]))
    print_line(describe_outcome(found))


def describe_outcome(found: Explanation) -> str:
    """Return as one sentence what would have changed the outcome."""
    from contexture.ledger import State

    if found.entry.state is not State.DROPPED:
        return "It is in the prompt."
    ways: list[str] = []
    if found.more_tokens is not None:
        ways.append(f"{found.more_tokens} more tokens of budget")
    if found.score_needed is not None:
        ways.append(f"a score of {found.score_needed:.3f} instead of {found.entry.score:.3f}")
    return f"{' or '.join(ways)} would have admitted it." if ways else "No budget and no score would have admitted it."


def register_replay(app: typer.Typer) -> None:
    """Add the command to the app."""
    cli.register_command(app, "replay")(replay)


def replay(
    common: cli.Common,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Written by `build --capsule`; `-` for standard input.")],
    show: Annotated[bool, typer.Option("--show", help="Also print the prompt and the ledger.")] = False,
) -> None:
    """Rebuild a capsule and compare the bytes.

    Needs neither the store nor a model, and fails if a byte differs.
    """
    from contexture.engine import replay as rebuild

    capsule, ledger = rebuild(cli.read_bytes(file))
    if common.as_json:
        answer = {"identical": True, "digest": capsule.digest, "messages": capsule.messages, "ledger": ledger.entries}
        print_json({**answer, "degradations": ledger.degradations})
        return
    print_line(f"identical: {capsule.digest}")
    if show:
        _print_replay(capsule, ledger)


def _print_replay(capsule: Capsule, ledger: Ledger) -> None:
    from contexture.cli._tables import ledger_view, panel

    out = console()
    for message in capsule.messages:
        out.print(panel(str(message.get("name", message["role"])), str(message["content"])))
    out.print(ledger_view(ledger))


def register_cite(app: typer.Typer) -> None:
    """Add the group and its command to the app."""
    group = typer.Typer(help="Check citations.", no_args_is_help=True, rich_markup_mode=None)
    cli.register_command(group, "verify", with_identity=True)(verify_citations)
    app.add_typer(group, name="cite")


def verify_citations(
    common: cli.Common,
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="A built context, an answer or a capsule as JSON; `-` for standard input."),
    ],
) -> None:
    """Check every citation in FILE against the stored text.

    The stored text is redacted again before it is compared; an ellipsis matches any text. The exit code is 1 if a
    citation does not hold.
    """
    found = _verify(common.settings(), cli.read_bytes(file))
    if common.as_json:
        print_json(found)
    else:
        for problem in found["problems"]:
            print_line(f"does not hold: {problem['reason']}")
        state = "all hold" if found["holds"] else f"{len(found['problems'])} problems"
        print_line(f"{found['citations']} citations checked: {state}")
    if not found["holds"]:
        raise typer.Exit(1)


def _verify(settings: Settings, data: bytes) -> dict[str, Any]:
    service = find_service(settings)
    if service is not None:
        return service.request(
            "POST", "/v1/citations/verify", cli.parse_json(cli.decode_text(data, "the file"), "the file")
        )
    found = cli.run_with_engine(
        cli.require_store(settings), lambda engine: engine.verify(data), action="citations.verify"
    )
    return found.to_dict()
