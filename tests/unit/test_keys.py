"""API keys: bound, hashed, expiring, revocable."""

from __future__ import annotations

import sqlite3
import stat
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contexture.adapters.keys import DEFAULT_RIGHTS, ApiKeys, Right
from contexture.errors import InvalidRequest, NotFound, SourceUnavailable, StoreDamaged
from contexture.testing.doubles import NOON
from contexture.types import Scope

ANNA = Scope(tenant="acme", user="anna", groups=("sales", "Продажи"))


@pytest.fixture
def keys(tmp_path):
    """Keys in an empty folder."""
    found = ApiKeys(tmp_path / "home" / "keys.sqlite")
    yield found
    found.close()


def test_a_key_leads_to_its_owner(keys):
    """What was printed once finds the tenant, user and groups it was made for."""
    made, token = keys.add("laptop", ANNA, now=NOON)

    assert token.startswith(f"ctx_{made.id}_")
    assert made == keys.find(token, now=NOON)
    assert ANNA == made.scope


def test_nothing_on_disk_opens_anything(keys, tmp_path):
    """The secret stands in none of the files, and they are their owner's alone."""
    _, token = keys.add("laptop", ANNA, now=NOON)
    files = list((tmp_path / "home").iterdir())

    assert all(token.rpartition("_")[2].encode() not in path.read_bytes() for path in files)
    assert {0o600} == {stat.S_IMODE(path.stat().st_mode) for path in files}


@pytest.mark.parametrize("after", [timedelta(0), timedelta(seconds=-1), timedelta(days=400)])
def test_a_key_works_until_it_expires(keys, after):
    """The moment of expiry is the first at which it does not work."""
    end = NOON + timedelta(days=30)
    _, token = keys.add("short", ANNA, now=NOON, expires=end)

    assert (after < timedelta(0)) is (keys.find(token, now=end + after) is not None)


def test_a_key_that_is_expired_at_birth_is_refused(keys):
    """It could only be a mistake."""
    with pytest.raises(InvalidRequest, match="in the future"):
        keys.add("late", ANNA, now=NOON, expires=NOON)


@pytest.mark.parametrize("name", ["", " "])
def test_a_key_needs_a_name(keys, name):
    """Nobody could tell later what a nameless one is for."""
    with pytest.raises(InvalidRequest, match="needs a name"):
        keys.add(name, ANNA, now=NOON)


@pytest.mark.parametrize(
    ("name", "scope"),
    [("\udcff", ANNA), ("x", Scope(tenant="\udcff", user="a")), ("x", Scope(tenant="t", user="a", groups=("\ud800",)))],
)
def test_names_that_cannot_be_stored_are_refused(keys, name, scope):
    """A word of a command line need not be valid Unicode."""
    with pytest.raises(InvalidRequest, match="lone surrogate"):
        keys.add(name, scope, now=NOON)


def test_another_process_revokes(keys, tmp_path):
    """A second connection, as the command line has one, takes effect at the next look."""
    made, token = keys.add("laptop", ANNA, now=NOON)
    other = ApiKeys(tmp_path / "home" / "keys.sqlite")
    revoked = other.revoke(made.id, now=NOON)
    again = other.revoke(made.id, now=NOON + timedelta(days=1))
    other.close()

    assert keys.find(token, now=NOON) is None
    assert NOON == revoked.revoked == again.revoked
    assert [revoked] == keys.list()


def test_an_unknown_key_cannot_be_revoked(keys):
    """A slip in the id must not look like success."""
    with pytest.raises(NotFound, match="no key 'none'"):
        keys.revoke("none", now=NOON)


def test_a_revoked_key_still_counts_as_one(keys):
    """Revoking the last key must not open the door to everyone."""
    before = keys.is_empty()
    made, _ = keys.add("laptop", ANNA, now=NOON)
    keys.revoke(made.id, now=NOON)

    assert (True, False) == (before, keys.is_empty())


def test_keys_do_not_open_each_other(keys):
    """The id of one key with the secret of another is no key."""
    (one, first), (_, second) = keys.add("a", ANNA, now=NOON), keys.add("b", ANNA, now=NOON)

    assert keys.find(f"ctx_{one.id}_{second.rpartition('_')[2]}", now=NOON) is None
    assert keys.find(first, now=NOON) == one


@given(presented=st.text(max_size=80) | st.from_regex(r"ctx_[0-9a-f]{12}_[A-Za-z0-9_-]{43}", fullmatch=True))
def test_whatever_else_is_presented_is_no_key(tmp_path_factory, presented):
    """No text that was not printed by `add` finds anything, and none fails."""
    keys = ApiKeys(tmp_path_factory.mktemp("keys") / "keys.sqlite")
    keys.add("laptop", ANNA, now=NOON)
    found = keys.find(presented, now=NOON)
    keys.close()

    assert found is None


@given(rights=st.sets(st.sampled_from(Right), min_size=1))
def test_a_key_keeps_its_rights(tmp_path_factory, rights):
    """Another process reads the same ones."""
    path = tmp_path_factory.mktemp("keys") / "keys.sqlite"
    keys, other = ApiKeys(path), ApiKeys(path)
    made, token = keys.add("x", ANNA, now=NOON, rights=rights)
    found = other.find(token, now=NOON)
    keys.close()
    other.close()

    assert rights == made.rights == found.rights


def test_a_key_without_rights_is_refused(keys):
    """It could only be a mistake."""
    with pytest.raises(InvalidRequest, match="at least one scope"):
        keys.add("x", ANNA, now=NOON, rights=())


def test_keys_made_before_there_were_rights_still_work(keys, tmp_path):
    """They may do what they could: read, ask and write."""
    made, token = keys.add("old", ANNA, now=NOON, rights=[Right.READ])
    keys.close()
    with sqlite3.connect(tmp_path / "home" / "keys.sqlite") as old:
        old.execute("alter table keys drop column rights")
    again = ApiKeys(tmp_path / "home" / "keys.sqlite")
    found = again.find(token, now=NOON)
    again.add("new", ANNA, now=NOON, rights=[Right.ADMIN])
    rights = {each.name: each.rights for each in again.list()}
    again.close()

    assert (made.id, DEFAULT_RIGHTS) == (found.id, found.rights)
    assert {"old": DEFAULT_RIGHTS, "new": {Right.ADMIN}} == rights


def test_a_right_that_this_version_does_not_know_opens_nothing(keys, tmp_path):
    """A file that a later version wrote can be read."""
    _, token = keys.add("x", ANNA, now=NOON)
    with sqlite3.connect(tmp_path / "home" / "keys.sqlite") as later:
        later.execute("update keys set rights = 'read,fly'")

    assert {Right.READ} == keys.find(token, now=NOON).rights


def test_a_file_that_is_no_database_is_a_clear_error(tmp_path):
    """The path is named."""
    (tmp_path / "keys.sqlite").write_bytes(b"not a database, but long enough to be looked at" * 9)
    with pytest.raises(StoreDamaged, match=r"keys\.sqlite"):
        ApiKeys(tmp_path / "keys.sqlite")


def test_a_database_that_breaks_later_is_a_clear_error(keys, tmp_path):
    """A table that was taken away is a failure of the store, not a key that is unknown."""
    _, token = keys.add("laptop", ANNA, now=NOON)
    with sqlite3.connect(tmp_path / "home" / "keys.sqlite") as other:
        other.execute("drop table keys")
    with pytest.raises(SourceUnavailable, match="no such table: keys"):
        keys.find(token, now=NOON)
