"""Recent builds on disk."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from contexture.adapters.builds import BuildFolder
from contexture.errors import NotFound, StoreUnwritable


def build_id(number: int) -> str:
    """An id of the right shape."""
    return f"ctx-{number:012x}"


def test_a_kept_build_is_read_again(tmp_path: Path) -> None:
    """What was saved is loaded, and saving again replaces it."""
    builds = BuildFolder(tmp_path / "builds", 3)
    builds.save(build_id(1), b"old")
    builds.save(build_id(1), b"new")

    assert b"new" == builds.load(build_id(1))
    assert 1 == len(list((tmp_path / "builds").iterdir()))


def test_builds_are_for_their_owner_alone(tmp_path: Path) -> None:
    """Nobody else on the machine reads what was shown."""
    builds = BuildFolder(tmp_path, 3)
    builds.save(build_id(1), b"x")
    builds.save(build_id(1), b"y")

    assert [0o600] == [path.stat().st_mode & 0o777 for path in tmp_path.iterdir()]


def test_the_oldest_build_makes_room(tmp_path: Path) -> None:
    """No more than the given number is kept, also after reopening; a build saved again counts as new."""
    builds = BuildFolder(tmp_path, 2)
    for number in (1, 2, 1, 3):
        builds.save(build_id(number), b"x")
    BuildFolder(tmp_path, 2).save(build_id(4), b"x")

    assert {f"{build_id(number)}.json" for number in (3, 4)} == {path.name for path in tmp_path.iterdir()}


def test_the_builds_of_one_tenant_do_not_push_out_those_of_another(tmp_path: Path) -> None:
    """The tenant with the most loses its oldest, also after reopening; a lone tenant may keep all."""
    builds = BuildFolder(tmp_path, 4)
    for number, tenant in enumerate(["quiet", *["loud"] * 9]):
        builds.save(build_id(number), f'{{"tenant": "{tenant}"}}'.encode())
    BuildFolder(tmp_path, 4).save(build_id(10), b'{"tenant": "loud"}')

    assert {f"{build_id(number)}.json" for number in (0, 8, 9, 10)} == {path.name for path in tmp_path.iterdir()}


@pytest.mark.parametrize("name", ["ctx-00000000000f", "", "../../etc/passwd", "ctx-00000000000F", "ctx-0000000000010"])
def test_unknown_builds_are_answered_alike(tmp_path: Path, name: str) -> None:
    """An id of another shape never reaches the disk."""
    with pytest.raises(NotFound):
        BuildFolder(tmp_path, 2).load(name)


def test_keeping_none_writes_nothing(tmp_path: Path) -> None:
    """With 0 builds to keep, the folder is not even made."""
    BuildFolder(tmp_path / "builds", 0).save(build_id(1), b"x")

    assert not (tmp_path / "builds").exists()


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    """The failure of a disk is ours, not a bare OSError."""
    (tmp_path / "builds").write_text("a file in the way")
    with pytest.raises(StoreUnwritable, match=build_id(1)):
        BuildFolder(tmp_path / "builds", 2).save(build_id(1), b"x")


def test_threads_may_save_at_once(tmp_path: Path) -> None:
    """Builds saved from several threads are all whole, and no more than allowed remain."""
    builds = BuildFolder(tmp_path, 5)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: builds.save(build_id(number % 12), b"x" * 1_000), range(200)))

    assert [1_000] * 5 == [path.stat().st_size for path in tmp_path.iterdir()]
