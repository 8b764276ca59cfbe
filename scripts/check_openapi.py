"""Send requests that schemathesis generates from OpenAPI to a real service, with all of its checks.

`python scripts/check_openapi.py --cases 3000` starts a service over an empty store, sends about that many requests, and
fails for any answer of the status 5XX, and for any that is not as described.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from time import sleep

import httpx

from contexture.adapters.keys import ApiKeys
from contexture.types import Right, Scope

# The service answers what JSON Schema cannot say, such as an empty query or an unknown id, with a 4XX and its reason.
EXCLUDED = ("positive_data_acceptance",)

# A row that cannot be stored is reported in the answer, so that one that is wrong does not stop the others.
CONFIGURATION = "".join(
    f'[[operations]]\ninclude-path = "/v1/ingest/{name}"\nchecks.negative_data_rejection.enabled = false\n'
    for name in ("documents", "articles")
)


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
            while httpx.get(f"{url}/ready").is_error:
                sleep(0.2)
            yield url, token
        finally:
            process.terminate()


def main() -> int:
    """Run the checks; returns the exit code of schemathesis."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=3_000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, serving(Path(folder)) as (url, token):
        paths = httpx.get(f"{url}/openapi.json").json()["paths"]
        operations = sum(len(each) for each in paths.values())
        settings = Path(folder) / "schemathesis.toml"
        settings.write_text(CONFIGURATION, encoding="utf-8")
        words = [
            "--config-file",
            str(settings),
            "run",
            f"{url}/openapi.json",
            "-H",
            f"Authorization: Bearer {token}",
            "--checks",
            "all",
        ]
        words += ["--exclude-checks", ",".join(EXCLUDED), "--phases", "examples,fuzzing", "--seed", str(given.seed)]
        words += ["-n", str(-(-given.cases // operations)), "--suppress-health-check", "all", "--continue-on-failure"]
        words += ["--request-timeout", "60"]
        return subprocess.call([Path(sys.executable).with_name("schemathesis"), *words])  # noqa: S603 - our own tool


if __name__ == "__main__":
    sys.exit(main())
