"""The files with which people run the service: they parse, and name only what exists."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from configparser import RawConfigParser
from pathlib import Path

import pytest
import yaml
from typer.main import get_command

from contexture.cli.main import app
from contexture.config import Settings

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
YAML = [ROOT / "compose.yaml", *sorted(DEPLOY.rglob("*.yml"))]
UNITS = sorted(DEPLOY.glob("contexture*.service")) + sorted(DEPLOY.glob("*.timer"))
VARIABLE = re.compile(r"\bCONTEXTURE_[A-Z_]+")
DOCKERFILE = (ROOT / "Dockerfile").read_text()
COMPOSE = yaml.safe_load((ROOT / "compose.yaml").read_text())


def unit(path):
    """The sections of a systemd unit; a key may stand in one several times, and the last one counts here."""
    parser = RawConfigParser(strict=False)
    parser.optionxform = str
    parser.read_string(path.read_text())
    return parser


@pytest.mark.parametrize("path", YAML, ids=lambda path: path.name)
def test_yaml_files_are_mappings(path):
    """Each can be read."""
    assert isinstance(yaml.safe_load(path.read_text()), dict)


@pytest.mark.parametrize("path", [*YAML, *UNITS, ROOT / "Dockerfile"], ids=lambda path: path.name)
def test_only_settings_that_exist_are_named(path):
    """A variable that was renamed is renamed here too."""
    assert set(VARIABLE.findall(path.read_text())) <= set(Settings.env_names())


def test_what_is_mounted_exists():
    """Files that containers get from this folder are there, and every named volume is declared."""
    mounts = [
        mount.split(":") for service in COMPOSE["services"].values() for mount in service["volumes"] if ":" in mount
    ]
    here = [source for source, *_ in mounts if source.startswith("./")]
    named = {source for source, *_ in mounts if not source.startswith("./")}

    assert here
    assert [] == [source for source in here if not (ROOT / source).exists()]
    assert named == set(COMPOSE["volumes"])


def test_containers_wait_only_for_others_that_exist_and_listen_on_this_machine():
    """Nothing is open to a network by default."""
    for service in COMPOSE["services"].values():
        assert set(service.get("depends_on", ())) <= set(COMPOSE["services"])
        assert all(port.startswith("127.0.0.1:") for port in service["ports"])


@pytest.mark.parametrize("name", ["contexture", "worker"])
def test_service_and_worker_share_a_broker_and_a_database_that_nobody_else_reaches(name):
    """Both are containers next to them, which publish no port; the command line takes the words."""
    services = COMPOSE["services"]
    given = services[name]["environment"]
    scheme, _, place = given["CONTEXTURE_BUS"].partition("://")
    listeners = services["kafka"]["environment"]["KAFKA_ADVERTISED_LISTENERS"]
    command, *options = services[name]["command"]
    words = {word for each in get_command(app).commands[command].params for word in each.opts}

    assert ("kafka", f"PLAINTEXT://{place}") == (scheme, listeners)
    assert given["CONTEXTURE_STORE"] == "postgres://contexture@postgres/contexture"
    assert given["PGPASSWORD"] == services["postgres"]["environment"]["POSTGRES_PASSWORD"]
    assert services["postgres"]["environment"]["POSTGRES_USER"] == "contexture"
    assert not services["kafka"]["ports"] + services["postgres"]["ports"]
    assert {word for word in options if word.startswith("--")} <= words


def test_the_image_has_what_the_containers_need():
    """A driver of the database and one of the broker."""
    assert {"worker", "postgres"} <= set(re.search(r"^ARG EXTRAS=(.*)$", DOCKERFILE, re.MULTILINE)[1].split(","))


def test_prometheus_scrapes_service_and_workers_and_grafana_reads_prometheus():
    """The addresses are those of the containers."""
    service, workers = yaml.safe_load((DEPLOY / "prometheus.yml").read_text())["scrape_configs"]
    sources = yaml.safe_load((DEPLOY / "grafana/provisioning/datasources/prometheus.yml").read_text())

    assert [{"targets": ["contexture:8420"]}] == service["static_configs"]
    assert workers["dns_sd_configs"] == [{"names": ["worker"], "type": "A", "port": 9100}]
    assert COMPOSE["services"]["worker"]["command"][-2:] == ["--metrics-port", "9100"]
    assert sources["datasources"][0]["url"] == "http://prometheus:9090"
    assert "EXPOSE 8420" in DOCKERFILE
    assert str(Settings.model_fields["port"].default) == "8420"


def test_the_dashboard_lies_where_grafana_looks():
    """The provider's folder is where the dashboard is mounted, and the dashboard is JSON."""
    provider = yaml.safe_load((DEPLOY / "grafana/provisioning/dashboards/contexture.yml").read_text())["providers"][0]
    mounts = dict(mount.split(":")[:2] for mount in COMPOSE["services"]["grafana"]["volumes"])
    source, place = next((source, place) for source, place in mounts.items() if source.endswith("dashboard.json"))

    assert Path(place).parent == Path(provider["options"]["path"])
    assert json.loads((ROOT / source).read_text())["panels"]


def test_the_image_starts_a_command_that_exists_as_an_ordinary_user():
    """The entry point is our command line, and the service does not run as root."""
    command = re.search(r"^CMD (\[.*\])$", DOCKERFILE, re.MULTILINE)

    assert json.loads(command[1])[0] in get_command(app).commands
    assert 'ENTRYPOINT ["contexture"]' in DOCKERFILE
    assert DOCKERFILE.index("USER contexture") < DOCKERFILE.index("ENTRYPOINT")


def test_the_image_installs_extras_that_exist_and_gets_the_files_it_copies():
    """The build asks for nothing that the project does not have, or that is kept from it."""
    extras = re.search(r"^ARG EXTRAS=(.*)$", DOCKERFILE, re.MULTILINE)[1].split(",")
    project = (ROOT / "pyproject.toml").read_text()
    allowed = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    copied = re.findall(r"^COPY (.*) \S+$", DOCKERFILE, re.MULTILINE)

    assert [] == [name for name in extras if not re.search(rf"^{name} = \[", project, re.MULTILINE)]
    assert {*" ".join(copied).split(), "requirements.lock"} == set(allowed)


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_units_start_commands_that_exist(path):
    """A unit runs our command line as its own user; a timer starts the service of the same name."""
    parsed = unit(path)
    if path.suffix == ".timer":
        assert path.with_suffix(".service").exists()
        return
    words = shlex.split(parsed["Service"]["ExecStart"].replace("'", " ").replace('"', " "))
    place = words.index("/opt/contexture/bin/contexture")

    assert words[place + 1] in get_command(app).commands
    assert parsed["Service"]["User"] == "contexture"


@pytest.mark.needs("systemd")
@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_systemd_understands_the_units(path, tmp_path):
    """No key is unknown and no value is refused; the programs are those of a test machine."""
    for each in UNITS:
        text = each.read_text().replace("/opt/contexture/bin/contexture", "/bin/true")
        (tmp_path / each.name).write_text(text)
    found = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", tmp_path / path.name], capture_output=True, text=True, check=False
    )
    told = [line for line in found.stderr.splitlines() if path.name in line]

    assert [] == told
