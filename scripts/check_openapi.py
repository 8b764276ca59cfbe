"""Send requests that schemathesis generates from OpenAPI to a real service, with all of its checks.

`python scripts/check_openapi.py --cases 3000` starts a service over an empty store, sends at least that many requests,
and fails for any answer of the status 5XX, and for any that is not as described. A request that fits its schema may be
refused with 400 or 422 only for a reason that its operation lists as `x-refusals`.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Generator, Mapping
from contextlib import chdir, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from time import sleep
from typing import Any

import httpx
import schemathesis
import schemathesis.cli

from contexture.adapters.keys import ApiKeys
from contexture.types import Right, Scope

# The check below takes over 400 and 422; all other checks are as they come.
CONFIGURATION = """
[checks.positive_data_acceptance]
expected-statuses = ["2xx", "3xx", "400", "401", "403", "404", "409", "422", "429"]
"""
REFUSED = (400, 422)


@schemathesis.check
def refusals_are_documented(_context: object, response: Any, case: Any) -> None:
    """A request that fits its schema is refused for a reason that the operation lists."""
    made = case.meta
    if response.status_code not in REFUSED or made is None or not made.generation.mode.is_positive:
        return
    message = response.json()["error"]["user_message"]
    if not is_documented(case.operation.definition.raw, message):
        raise AssertionError(f"refused for a reason that is not in `x-refusals`: {message}")


def is_documented(operation: Mapping[str, Any], message: str) -> bool:
    """Whether an operation of an OpenAPI document lists the reason in this message."""
    reasons: list[str] = operation["responses"]["4XX"].get("x-refusals", [])
    patterns = [".*".join(map(re.escape, reason.split("…"))) for reason in reasons]
    return any(re.fullmatch(pattern, message, re.DOTALL) for pattern in patterns)


@contextmanager
def serving(home: Path) -> Generator[tuple[str, str]]:
    """The address of a service and a key for it."""
    keys = ApiKeys(home / "keys.sqlite")
    scope = Scope(tenant="acme", user="anna")
    token = keys.add("schemathesis", scope, now=datetime.now(UTC), rights=frozenset(Right))[1]
    keys.close()
    code = "from contexture.cli.main import app; app()"
    words = [sys.executable, "-c", code, "serve", "--home", str(home), "--port", "0", "--json"]
    with subprocess.Popen(  # noqa: S603 - our own interpreter
        words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        try:
            url = json.loads(process.stdout.readline() if process.stdout else "{}")["url"]
            while httpx.get(f"{url}/ready", timeout=60).is_error:
                sleep(0.2)
            yield url, token
        finally:
            process.terminate()


def main() -> int:
    """Run the checks; returns the exit code of schemathesis."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=3_000, help="requests to generate at random")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--phases", default="examples,coverage,fuzzing")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, serving(Path(folder)) as (url, token), chdir(folder):
        paths = httpx.get(f"{url}/openapi.json", timeout=60).json()["paths"]
        operations = sum(len(each) for each in paths.values())
        Path("schemathesis.toml").write_text(CONFIGURATION, encoding="utf-8")
        words = ["run", f"{url}/openapi.json", "-H", f"Authorization: Bearer {token}", "--checks", "all"]
        words += ["--phases", given.phases, "--seed", str(given.seed), "-n", str(-(-given.cases // operations))]
        words += ["--suppress-health-check", "all", "--continue-on-failure", "--request-timeout", "60"]
        return schemathesis.cli.schemathesis.main(words, standalone_mode=False)


if __name__ == "__main__":
    sys.exit(main())
