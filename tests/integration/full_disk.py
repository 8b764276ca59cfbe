"""Runs in a mount namespace of its own: serves a store on a small disk, fills it, and asks every route that writes.

Prints the status of each request as one JSON object: with room, without, and with room again.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from shutil import disk_usage

import httpx

from support.requests import READS, WRITES, number_body

START = "from contexture.cli.main import app; app()"


def main(folder: Path) -> None:
    """Mount the disk, serve, ask, fill, ask, empty, ask, kill."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=400m", "tmpfs", str(folder)], check=True)
    home = folder / "home"
    words = [sys.executable, "-c", START, "serve", "--home", str(home), "--port", "0", "--json"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            url = json.loads(process.stdout.readline())["url"]
            token = json.loads((home / "serve.json").read_text())["token"]
            headers = {"Authorization": f"Bearer {token}"}
            with httpx.Client(base_url=url, headers=headers, trust_env=False, timeout=120) as client:
                found = {"before": ask_all(client, 1)}
                (folder / "filler").write_bytes(bytes(disk_usage(folder).free - (48 << 20)))
                found["full"] = ask_all(client, 2)
                found["keys"] = add_key(home)
                found["health"] = client.get("/health").json()["components"]["store"]
                found["delete"] = client.request("DELETE", "/v1/ingest/documents", json={"ids": ["r1"]}).status_code
                (folder / "filler").unlink()
                found["after"] = ask_all(client, 3)
        finally:
            process.kill()
    sys.stdout.write(json.dumps(found))


def ask_all(client: httpx.Client, number: int) -> dict[str, list[object]]:
    """The status and the message of every request."""
    return {name: ask(client, path, body, number) for name, (path, body) in {**WRITES, **READS}.items()}


def ask(client: httpx.Client, path: str, body: object, number: int) -> list[object]:
    """One request."""
    answer = client.post(path, json=number_body(body, number))
    said = answer.json()
    return [answer.status_code, said["error"]["user_message"] if "error" in said else ""]


def add_key(home: Path) -> list[object]:
    """The exit code and the message of `contexture keys add`."""
    words = [sys.executable, "-c", START, "keys", "add", "mine", "--home", str(home)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    return [done.returncode, done.stderr]


main(Path(sys.argv[1]))
