"""What the tooling reads from firebase.json."""

from pathlib import Path

import pytest

from dev import project


@pytest.mark.parametrize(
    ("runtime", "version"), [("python39", "3.9"), ("python311", "3.11"), ("python314", "3.14")]
)
def test_a_runtime_names_one_python_version(runtime: str, version: str) -> None:
    assert project.python_version(runtime) == version


@pytest.mark.parametrize("runtime", ["nodejs22", "python", "python3", "python3.11", ""])
def test_another_runtime_is_refused(runtime: str) -> None:
    with pytest.raises(ValueError, match="not a Python runtime"):
        project.python_version(runtime)


def test_the_emulators_that_make_dev_starts_have_ports_of_their_own() -> None:
    ports = [project.read().port(emulator) for emulator in project.EMULATORS]
    assert len(set(ports)) == len(ports)


def test_the_payment_server_has_a_port_of_its_own(tmp_path: Path) -> None:
    ours = project.read()
    assert ours.payments_port == 5005
    assert ours.payments_port not in {ours.port(emulator) for emulator in project.EMULATORS}
    assert project.Project(tmp_path, ours.config).payments_port is None


def test_the_local_project_never_reaches_a_real_service() -> None:
    assert project.LOCAL_PROJECT.startswith("demo-")
