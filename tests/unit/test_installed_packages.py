"""System libraries that pip does not install: each one missing is named, and the rest works."""

from __future__ import annotations

import json
import sys

import pytest
import structlog
from typer.testing import CliRunner

from contexture import Settings, wiring
from contexture.adapters import installed_packages
from contexture.adapters.documents import ocr
from contexture.adapters.policy.open import DenyingPolicy
from contexture.answer.route import ModelRoute, complete
from contexture.cli.main import app
from contexture.conversation import HealthState
from contexture.errors import MissingLibrary, SourceUnavailable
from contexture.ledger import Trace
from contexture.types import Message, Scope
from contexture.wiring.content import missing_ocr_library

ADAPTERS = {"regopy": "contexture.adapters.policy.rego", "xllamacpp": "contexture.adapters.llm.local"}
LIBRARIES = {"regopy": "libatomic.so.1", "xllamacpp": "libgomp.so.1", "tesserocr": "libstrange.so.3"}


@pytest.fixture
def without_libraries(monkeypatch):
    """A machine on which the dynamic linker finds none of these libraries, as on a bare Debian."""

    def fail(name):
        kind = OSError if name == "regopy" else ImportError  # as the real packages do
        raise kind(f"{LIBRARIES[name]}: cannot open shared object file: No such file or directory")

    monkeypatch.setattr(installed_packages, "import_module", fail)
    for adapter in ADAPTERS.values():
        monkeypatch.delitem(sys.modules, adapter, raising=False)
    ocr.load_tesseract.cache_clear()
    yield
    ocr.load_tesseract.cache_clear()


def test_a_missing_library_names_its_debian_package(without_libraries):
    """The sentence says which feature needs which library, and what to type."""
    with pytest.raises(MissingLibrary) as caught:
        installed_packages.import_native("regopy", feature="a policy in Rego", extra="rego")

    assert "a policy in Rego needs the system library libatomic.so.1: apt-get install libatomic1" == str(caught.value)
    assert isinstance(caught.value, SourceUnavailable)
    assert isinstance(caught.value, ImportError)


@pytest.mark.parametrize("failure", [ImportError("version `GLIBC_3' not found"), OSError("failed to map segment")])
def test_a_package_that_is_installed_and_broken_is_not_called_missing(monkeypatch, failure):
    """The reason is shown, and nobody is told to install what is installed."""

    def fail(name):
        raise failure

    monkeypatch.setattr(installed_packages, "import_module", fail)
    with pytest.raises(MissingLibrary, match=r"needs regopy, which cannot be loaded: (version|failed)"):
        installed_packages.import_native("regopy", feature="a policy in Rego", extra="rego")


def test_an_unknown_library_is_named_all_the_same(without_libraries):
    """Where the package is not known, the library is named alone."""
    with pytest.raises(MissingLibrary, match=r"needs the system library libstrange\.so\.3, which is not installed$"):
        installed_packages.import_native("tesserocr", feature="OCR", extra="ocr")


async def test_a_policy_that_cannot_be_loaded_denies(without_libraries, tmp_path):
    """It is configured, so nothing is allowed without it; the log names the package and callers are not told it."""
    (tmp_path / "rules.rego").write_text("package contexture\nallow := true")
    with structlog.testing.capture_logs() as logged:
        chosen = wiring.policy(Settings(policy_folder=tmp_path))
    decision = await chosen.decide(Scope.local(), "search", {})

    assert isinstance(chosen, DenyingPolicy)
    assert (False, HealthState.DOWN) == (decision.allowed, await chosen.state())
    assert ["apt-get install libatomic1" in each["reason"] for each in logged] == [True]
    assert "libatomic" not in decision.reason


async def test_the_next_model_answers_for_one_that_cannot_be_loaded(without_libraries):
    """The failure is a degradation of the answer, and extracts answer."""
    models = ModelRoute({name: wiring.chat_model(name) for name in ("local", "extractive")}).order_models("local")
    trace = Trace()
    answer = await complete(models, [Message(role="user", content="Where is the pump?")], 50, trace)

    assert "extractive" == answer.model
    assert ["apt-get install libgomp1" in each.reason for each in trace.finish([]).degradations] == [True]


def test_the_doctor_names_what_each_feature_needs(without_libraries, tmp_path):
    """Incomplete extras break nothing; a configured policy that denies everything does."""
    (tmp_path / "rules.rego").write_text("package contexture\nallow := true")

    def examine(**env):
        result = CliRunner().invoke(app, ["doctor", "--home", str(tmp_path / "store"), "--json"], env=env)
        return result.exit_code, {check["name"]: check for check in json.loads(result.stdout)["checks"]}

    code, found = examine()
    broken, denied = examine(CONTEXTURE_POLICY_FOLDER=str(tmp_path))

    assert (0, 1) == (code, broken)
    assert {"incomplete"} == {found[name]["status"] for name in ("rego", "local", "ocr")}
    assert found["rego"]["detail"].endswith("apt-get install libatomic1")
    assert found["local"]["detail"].endswith("apt-get install libgomp1")
    assert ("broken", True) == (denied["policy"]["status"], "everything is denied" in denied["policy"]["detail"])


def test_ocr_without_its_languages_says_what_to_install(monkeypatch):
    """The engine comes from a wheel, its language data from Debian."""
    pytest.importorskip("tesserocr", reason='reading pictures needs: pip install "contexture-ai[ocr]"')
    monkeypatch.setattr(ocr, "_TESSDATA_FOLDERS", ())
    ocr.load_tesseract.cache_clear()
    said = missing_ocr_library()
    ocr.load_tesseract.cache_clear()

    assert said.endswith("apt-get install tesseract-ocr-eng tesseract-ocr-rus")
