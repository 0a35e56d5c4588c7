"""What a user installs: every file once, under `laneway`, and nothing beside it."""

import hashlib
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
LINKED = ("engine", "lanes", "policies", "journal", "benchmarks")

pytestmark = pytest.mark.skipif(
    not (ROOT / "src/laneway/engine").is_symlink(), reason="only a checkout has the links"
)


def build(target: str, *, source: Path, into: Path) -> Path:
    """Builds with no network and no isolation, as `pip install --no-build-isolation` does."""
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--target", target, "--directory", str(into)],
        cwd=source,
        check=True,
        capture_output=True,
    )
    (built,) = into.iterdir()
    return built


def contents(wheel: Path) -> dict[str, str]:
    """Returns the digest of every file of a wheel; two of one name would show as one."""
    with zipfile.ZipFile(wheel) as archive:
        return {name: hashlib.sha256(archive.read(name)).hexdigest() for name in archive.namelist()}


def files_of_the_package() -> list[str]:
    """Returns what git tracks or would track, by the names that an installed package must have."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--deduplicate"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    files = [Path(name) for name in listing.split("\0") if name and (ROOT / name).is_file()]
    own = [path.relative_to("src") for path in files if path.parts[:2] == ("src", "laneway")]
    linked = [Path("laneway") / path for path in files if path.parts[0] in LINKED]
    return sorted(path.as_posix() for path in own + linked)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("wheel", source=ROOT, into=tmp_path_factory.mktemp("wheel"))


@pytest.mark.parametrize("name", LINKED)
def test_a_link_in_the_source_folder_leads_to_the_real_folder(name: str) -> None:
    link = ROOT / "src/laneway" / name

    target = link.readlink()

    assert target == Path("../..", name)
    assert link.resolve() == ROOT / name
    assert (link / "__init__.py").is_file()


def test_the_wheel_holds_every_file_of_the_package_once_under_laneway(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()

    installed = sorted(name for name in names if ".dist-info/" not in name)

    assert installed == files_of_the_package()
    assert "laneway/py.typed" in installed


def test_no_generic_name_is_installed_at_the_top(wheel: Path) -> None:
    tops = {name.split("/")[0] for name in contents(wheel)}

    assert {top for top in tops if not top.endswith(".dist-info")} == {"laneway"}


def test_a_source_distribution_builds_the_same_wheel(wheel: Path, tmp_path: Path) -> None:
    sdist = build("sdist", source=ROOT, into=tmp_path / "sdist")
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path / "unpacked", filter="data")
    (source,) = (tmp_path / "unpacked").iterdir()

    rebuilt = build("wheel", source=source, into=tmp_path / "wheel")

    assert contents(rebuilt) == contents(wheel)


def test_the_installed_package_is_found_and_the_folders_names_stay_free(
    wheel: Path, tmp_path: Path
) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")  # noqa: S202 - the wheel is our own
    question = (
        "import importlib.util as u, laneway, laneway.engine.cli, laneway.benchmarks\n"
        "print(laneway.__file__)\n"
        f"print([name for name in {LINKED} if u.find_spec(name)])\n"
    )

    answer = subprocess.run(
        [sys.executable, "-c", question],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path / "site"), "PYTHONSAFEPATH": "1"},
        check=True,
        capture_output=True,
        text=True,
    ).stdout.splitlines()

    assert answer == [str(tmp_path / "site/laneway/__init__.py"), "[]"]


def names_of(requirements: list[str]) -> set[str]:
    return {re.split(r"[<>=!~\[ ;]", line)[0].lower() for line in requirements}


def lines_of(file: str) -> list[str]:
    text = (ROOT / "requirements" / file).read_text(encoding="utf-8")
    return [line.strip(" \\") for line in text.splitlines() if line and line[0] not in "#-"]


def pins_of(file: str) -> set[str]:
    """Names and versions; which platforms want them differs with who asks for them."""
    lines = (line for line in lines_of(file) if not line.startswith("--hash"))
    return {line.partition(" ;")[0].strip() for line in lines}


def test_the_requirements_repeat_the_bounds_of_the_package() -> None:
    with (ROOT / "pyproject.toml").open("rb") as file:
        declared = tomllib.load(file)
    project = declared["project"]

    extras = project["optional-dependencies"]
    wanted = project["dependencies"] + extras["cli"] + extras["mcp"] + extras["shell"]

    assert sorted(lines_of("run.in")) == sorted(wanted + declared["build-system"]["requires"])


def test_everything_asked_for_is_pinned_and_development_runs_what_users_run() -> None:
    run, dev = pins_of("run.txt"), pins_of("dev.txt")

    assert all("==" in pin for pin in dev)
    assert names_of(lines_of("run.in")) <= names_of(list(run))
    assert names_of(lines_of("dev.in")) <= names_of(list(dev))
    assert run <= dev


@pytest.mark.parametrize("file", ["run.in", "run.txt", "dev.in", "dev.txt"])
def test_the_requirements_name_no_index_and_no_path(file: str) -> None:
    text = (ROOT / "requirements" / file).read_text(encoding="utf-8")

    assert not re.search(
        r"://|--(extra-)?index|--find-links|--trusted-host| @ |^/", text, re.MULTILINE
    )
