"""A remote OPA: only `true`, in time, allows."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from contexture import Settings, wiring
from contexture.adapters.policy.opa import OpaPolicy
from contexture.errors import InvalidRequest
from contexture.types import Scope

ANNA = Scope(tenant="acme", user="anna", groups=("sales", "Продажи"))


class Handler(BaseHTTPRequestHandler):
    """Speaks as much of OPA's data API as is used; `answers` has one for each path."""

    def do_POST(self):
        """Answer as the path says, and keep what was asked."""
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append(asked["input"])
        status, body = self.server.answers[self.path]
        if status == 0:
            self.server.done.wait(30)
            return
        self.send_response(status)
        if status == 307:
            self.send_header("Location", "/v1/data/yes")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        """Say nothing."""


ANSWERS = {
    "/v1/data/yes": (200, b'{"result": {"allow": true, "reason": "because"}}'),
    "/v1/data/yes/allow": (200, b'{"result": true}'),
    "/v1/data/no": (200, b'{"result": {"allow": false}}'),
    "/v1/data/why": (200, b'{"result": {"allow": false, "reason": "closed on Sundays"}}'),
    "/v1/data/undefined": (200, b"{}"),
    "/v1/data/empty": (200, b'{"result": {}}'),
    "/v1/data/one": (200, b'{"result": {"allow": 1}}'),
    "/v1/data/text": (200, b'{"result": "true"}'),
    "/v1/data/list": (200, b"[true]"),
    "/v1/data/broken": (200, b'{"result": {"allow": true'),
    "/v1/data/long": (200, b'{"result": {"allow": true, "reason": "' + b"x" * 70_000 + b'"}}'),
    "/v1/data/error": (500, b'{"result": {"allow": true}}'),
    "/v1/data/moved": (307, b""),
    "/v1/data/silent": (0, b""),
}


@pytest.fixture
def opa():
    """An OPA on a free port."""
    found = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    found.asked, found.answers, found.done = [], dict(ANSWERS), threading.Event()
    found.url = f"http://127.0.0.1:{found.server_port}/v1/data/"
    threading.Thread(target=found.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    yield found
    found.done.set()
    found.shutdown()
    found.server_close()


async def decided(url, action="search", resource=None, patience=60.0):
    """What the policy at this address decides."""
    policy = OpaPolicy(url, timeout=patience)
    try:
        return await policy.decide(ANNA, action, resource or {})
    finally:
        await policy.close()


async def test_the_input_has_every_part(opa):
    """Tenant, user, groups, action and resource reach OPA as they reach policies in process."""
    await decided(opa.url + "yes", "ingest", {"records": 2, "names": ["а"]})

    resource = {"records": 2, "names": ["а"]}
    said = {"tenant": "acme", "user": "anna", "groups": ["sales", "Продажи"], "action": "ingest", "resource": resource}
    assert [said] == opa.asked


@pytest.mark.parametrize("path", ["yes", "yes/allow"])
async def test_only_true_allows(opa, path):
    """A package with `allow`, or the rule itself."""
    assert (await decided(opa.url + path)).allowed


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("no", "denies 'search'"),
        ("why", "closed on Sundays"),
        ("undefined", "does not say"),
        ("empty", "does not say"),
        ("one", "is not a boolean"),
        ("text", "is not a boolean"),
        ("list", "not an object"),
        ("broken", "not JSON"),
        ("long", "answered with status 200"),
        ("error", "answered with status 500"),
        ("moved", "answered with status 307"),
    ],
)
async def test_anything_else_is_a_denial(opa, path, said):
    """Undefined, false, of another kind, failing, redirecting: denied, with a reason."""
    decision = await decided(opa.url + path)

    assert not decision.allowed
    assert said in decision.reason


async def test_an_opa_that_takes_too_long_denies(opa):
    """The caller waits no longer than the limit."""
    decision = await decided(opa.url + "silent", patience=0.05)

    assert (False, "the policy did not decide within 0.05 seconds") == (decision.allowed, decision.reason)


async def test_an_opa_that_is_not_there_denies():
    """Nobody gets in because a server is down."""
    decision = await decided("http://127.0.0.1:9/v1/data/contexture")

    assert (False, "the policy server cannot be reached: ConnectError") == (decision.allowed, decision.reason)


async def test_half_a_character_is_denied(opa):
    """JSON cannot say it, so nobody is asked."""
    decision = await decided(opa.url + "yes", "search", {"id": "\ud800"})

    assert not decision.allowed
    assert [] == opa.asked


@pytest.mark.parametrize(("path", "state"), [("yes", "normal"), ("undefined", "normal"), ("error", "down")])
async def test_its_state_is_whether_it_answers(opa, path, state):
    """An undefined decision is an answer; an error is none."""
    policy = OpaPolicy(opa.url + path, timeout=60)
    found = await policy.state()
    await wiring.close_policy(policy)

    assert state == found


@pytest.mark.parametrize("url", ["opa:8181", "file:///etc/passwd", "http://a:b/", "http://"])
def test_an_address_that_is_none_is_refused_at_the_start(url):
    """A slip in the setting must not deny everything in silence."""
    with pytest.raises(InvalidRequest, match="policy URL"):
        wiring.policy(Settings(policy_url=url))


def test_only_one_policy_can_be_named(tmp_path):
    """Which of two holds would be a guess."""
    with pytest.raises(InvalidRequest, match="name one policy"):
        wiring.policy(Settings(policy_url="http://127.0.0.1:9/", policy_folder=tmp_path))
