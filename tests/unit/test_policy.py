"""Policies: what denies, what reloads, what is refused at the start."""

from __future__ import annotations

import subprocess
import sys

import pytest
import structlog

from contexture import Settings, wiring
from contexture.adapters.policy.open import OpenPolicy
from contexture.errors import InvalidRequest
from contexture.types import Scope

pytest.importorskip("contexture.adapters.policy.rego", exc_type=ImportError)

from contexture.adapters.policy.rego import RegoPolicy

pytestmark = pytest.mark.needs("libatomic1")

ANNA = Scope(tenant="acme", user="anna", groups=("sales", "Продажи"))
HEAD = "package contexture\nimport rego.v1\n"


def policy(folder, rules, **options):
    """A policy with these rules."""
    (folder / "rules.rego").write_text(HEAD + rules)
    return RegoPolicy(folder, **{"timeout": 30, **options})


async def test_without_a_folder_everything_is_allowed():
    """Nobody configured a policy, so none is in the way."""
    chosen = wiring.policy(Settings())

    assert isinstance(chosen, OpenPolicy)
    assert (await chosen.decide(ANNA, "anything", {})).allowed


async def test_the_input_has_every_part(tmp_path):
    """Tenant, user, groups, action and resource reach the rules as they are."""
    rules = """allow if {
        input.tenant == "acme"; input.user == "anna"; "Продажи" in input.groups
        input.action == "search"; input.resource.names[1] == "б\\"\\\\"
    }"""
    chosen = policy(tmp_path, rules)

    assert (await chosen.decide(ANNA, "search", {"names": ["а", 'б"\\']})).allowed
    assert not (await chosen.decide(ANNA, "search", {"names": ["а", "б"]})).allowed


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        ("", "does not say"),
        ('allow := "yes"', "is not a boolean"),
        ("allow := 1", "is not a boolean"),
        ("allow := false", "denies 'search'"),
        ('allow := false\nreason := "closed"', "closed"),
        ('reason := "closed"', "closed"),
        ("allow := false\nreason := 5", "denies 'search'"),
        ('allow := true if input.user == "anna"\nallow := false if input.tenant == "acme"', "the policy failed"),
    ],
)
async def test_anything_but_true_is_a_denial(tmp_path, rules, said):
    """Undefined, of another kind, false or failing: denied, with a reason."""
    decision = await policy(tmp_path, rules).decide(ANNA, "search", {})

    assert not decision.allowed
    assert said in decision.reason


async def test_a_policy_that_takes_too_long_denies(tmp_path):
    """The caller waits no longer than the limit."""
    slow = (
        'allow if { input.action == "search"; some i in numbers.range(1, 900); some j in numbers.range(1, 900)'
        "; i * j == 0 }"
    )
    decision = await policy(tmp_path, slow, timeout=0.001).decide(ANNA, "search", {})

    assert (False, "the policy did not decide within 0.001 seconds") == (decision.allowed, decision.reason)


async def test_a_changed_file_holds_from_the_next_decision_on(tmp_path):
    """Rules are reloaded when a file changes, appears or goes, without a restart."""
    chosen = policy(tmp_path, "allow := true")
    decisions = [(await chosen.decide(ANNA, "search", {})).allowed]
    (tmp_path / "rules.rego").write_text(HEAD + "allow := false")
    decisions.append((await chosen.decide(ANNA, "search", {})).allowed)
    (tmp_path / "rules.rego").unlink()
    (tmp_path / "others.rego").write_text(HEAD + "allow := true")
    decisions.append((await chosen.decide(ANNA, "search", {})).allowed)

    assert [True, False, True] == decisions


async def test_a_change_that_does_not_compile_denies_until_it_is_mended(tmp_path):
    """Nobody gets in by way of a slip in a file; the log says which slip, once, and callers learn nothing of it."""
    chosen = policy(tmp_path, "allow := true")
    (tmp_path / "rules.rego").write_text("package contexture\nallow := (")
    with structlog.testing.capture_logs() as logged:
        broken = [await chosen.decide(ANNA, "search", {}) for _ in range(2)]
        (tmp_path / "rules.rego").unlink()
        broken.append(await chosen.decide(ANNA, "search", {}))
    mended = policy(tmp_path, "allow := true")

    assert {(False, "the policy cannot be used")} == {(each.allowed, each.reason[:25]) for each in broken}
    assert not any("rules.rego" in each.reason for each in broken)
    assert ["does not compile", "has no .rego files"] == [
        next(said for said in ("does not compile", "has no .rego files") if said in each["reason"]) for each in logged
    ]
    assert (await mended.decide(ANNA, "search", {})).allowed
    assert (await chosen.decide(ANNA, "search", {})).allowed


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (b"package contexture\nallow := (", "rules.rego' does not compile"),
        (b"package other\nallow := true", "has `package contexture`"),
        (b"package contexture\nallow := nothing(1)", "fail:"),
        (b"\xff\xfe", "cannot be read"),
    ],
)
def test_a_broken_folder_is_refused_at_the_start(tmp_path, source, said, capfd):
    """The error names the file; nothing else is printed."""
    (tmp_path / "rules.rego").write_bytes(source)
    with pytest.raises(InvalidRequest, match=said):
        wiring.policy(Settings(policy_folder=tmp_path))

    assert ("", "") == capfd.readouterr()


@pytest.mark.parametrize(("name", "said"), [("", "has no .rego files"), ("none", "cannot be read")])
def test_a_folder_without_policies_is_refused(tmp_path, name, said):
    """A path that was mistyped must not mean that everything is allowed."""
    with pytest.raises(InvalidRequest, match=said):
        wiring.policy(Settings(policy_folder=tmp_path / name))


def test_a_missing_extra_says_what_to_type():
    """One sentence, with the command."""
    code = (
        "import sys; sys.modules['regopy'] = None\n"
        "try:\n    import contexture.adapters.policy.rego\n"
        "except ImportError as missing:\n    print(missing)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert 'a policy in Rego needs regopy: pip install "contexture-ai[rego]"\n' == found.stdout


async def test_its_state_follows_the_files(tmp_path):
    """Down while they do not compile or are gone, normal again once they are mended, without anybody asking."""
    chosen = policy(tmp_path, "allow := true")
    file = tmp_path / "rules.rego"
    states = [await chosen.state()]
    for text in ("broken {", HEAD + "allow := false"):
        file.write_text(text)
        states.append(await chosen.state())
    kept = file.read_text()
    file.unlink()
    states.append(await chosen.state())
    file.write_text(kept)
    states.append(await chosen.state())

    assert ["normal", "down", "normal", "down", "normal"] == states


async def test_a_state_that_does_not_come_in_time_is_degraded(tmp_path):
    """Decisions are made one at a time, so a slow one keeps the question waiting."""
    chosen = policy(tmp_path, "allow := true", timeout=0)

    assert "degraded" == await chosen.state()
