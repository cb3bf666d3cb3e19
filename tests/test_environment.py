"""What is installed is the same everywhere, and no file knows the machine it was written on."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).resolve().parent.parent
LOCKS = {
    "requirements.lock": [],
    "requirements-lecture.lock": ["lecture"],
    "requirements-test.lock": ["lecture", "test"],
}
# Put together here, so that this file does not hold what it looks for.
REGISTRY_HOSTS = [
    ".".join(parts)
    for parts in [
        ("pypi", "org"),
        ("pythonhosted", "org"),
        ("npmjs", "org"),
        ("npmjs", "com"),
        ("anaconda", "org"),
        ("anaconda", "com"),
        ("deb", "debian", "org"),
    ]
]
MACHINE_FOLDERS = ["work", "root", "home", "Users"]
# In a picture's base64 text and in a web address, another character stands before it.
MACHINE_PATH = re.compile(r"(?<![\w.+/-])/(?:" + "|".join(MACHINE_FOLDERS) + r")/")


@pytest.fixture(scope="module")
def project():
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def parse(requirements):
    """Return {name: range} of requirement strings."""
    parsed = [Requirement(text) for text in requirements]
    return {canonicalize_name(requirement.name): requirement.specifier for requirement in parsed}


def read_lock(name):
    """Return [(requirement, its hashes)] of a lock file."""
    text = (ROOT / name).read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    pins = []
    for line in "\n".join(lines).replace("\\\n", " ").splitlines():
        requirement, *hashes = re.split(r"\s--hash=", line.strip())
        pins.append((Requirement(requirement), [text.strip() for text in hashes]))
    return pins


def test_conda_and_pip_ask_for_the_same(project):
    environment = yaml.safe_load((ROOT / "environment.yml").read_text(encoding="utf-8"))
    assert environment["name"] == "positional-encodings"
    assert environment["channels"] == ["conda-forge"]
    plain = [entry for entry in environment["dependencies"] if isinstance(entry, str)]
    pip_part = [entry for entry in environment["dependencies"] if not isinstance(entry, str)]
    expected = parse([f"python{project['requires-python']}", "pip", *project["dependencies"]])
    assert parse(plain) == expected
    assert pip_part == [{"pip": ["-e ."]}]


def test_ranges_are_lower_bounds_only(project):
    for requirements in [project["dependencies"], *project["optional-dependencies"].values()]:
        for name, specifier in parse(requirements).items():
            assert [part.operator for part in specifier] == [">="], name


def test_the_build_needs_no_more_than_the_build_extra(project):
    build = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["build-system"]
    assert parse(build["requires"]) == parse(project["optional-dependencies"]["build"])


@pytest.mark.parametrize("name", LOCKS)
def test_locks_pin_every_dependency_inside_its_range(project, name):
    wanted = parse(project["dependencies"])
    for extra in LOCKS[name]:
        wanted |= parse(project["optional-dependencies"][extra])
    pinned = {}
    for requirement, _ in read_lock(name):
        pinned.setdefault(canonicalize_name(requirement.name), []).append(requirement.specifier)
    for dependency, allowed in wanted.items():
        assert dependency in pinned, f"{dependency} is missing: run `make lock`"
        for specifier in pinned[dependency]:
            (pin,) = specifier
            assert pin.operator == "=="
            assert allowed.contains(Version(pin.version)), f"{dependency} {pin.version}: run `make lock`"


@pytest.mark.parametrize("name", LOCKS)
def test_locks_have_hashes_and_no_address(name):
    pins = read_lock(name)
    assert pins
    for requirement, hashes in pins:
        assert hashes, requirement
        assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", text) for text in hashes), requirement
        assert requirement.url is None
    text = (ROOT / name).read_text(encoding="utf-8")
    for forbidden in ("://", "--index", "--extra-index", "--find-links", " @ "):
        assert forbidden not in text


def test_learners_lecturers_and_tests_have_the_same_versions():
    # Name and version: a test tool may need on more systems what the lab needs on some.
    lab, lecture, test = ({(one.name, str(one.specifier)) for one, _ in read_lock(name)} for name in LOCKS)
    assert lab <= lecture <= test


def course_files():
    """Return the files that are in the repository or about to be."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
    except (FileNotFoundError, subprocess.CalledProcessError):
        pytest.skip("not a git checkout, so there is no list of its files")
    paths = [ROOT / name for name in listed.stdout.decode().split("\0") if name]
    return sorted({path for path in paths if path.is_file()})


def texts():
    """Yield each text file with its text."""
    for path in course_files():
        try:
            yield path, path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue  # binary


def test_no_file_names_a_package_registry():
    found = [
        f"{path.relative_to(ROOT)}: {host}"
        for path, text in texts()
        for host in REGISTRY_HOSTS
        if host in text
    ]
    assert found == []


def test_no_file_names_a_folder_of_a_machine():
    found = [
        f"{path.relative_to(ROOT)}: {text[match.start() : match.start() + 40]!r}"
        for path, text in texts()
        for match in MACHINE_PATH.finditer(text)
    ]
    assert found == []


def test_the_search_for_folders_finds_them():
    for folder in MACHINE_FOLDERS:
        assert MACHINE_PATH.search(f'open("/{folder}/someone/file")')
    assert not MACHINE_PATH.search("https://example.com/" + "home/page")


@pytest.mark.parametrize("command", [["check"], ["format", "--check"]], ids=" ".join)
def test_ruff_finds_nothing(command):
    run = subprocess.run(
        [sys.executable, "-m", "ruff", *command, "--no-cache", str(ROOT)],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, f"\n{run.stdout}{run.stderr}"


def environment_without(*names, **more):
    """Return this process's environment as a learner's would be."""
    return {name: value for name, value in os.environ.items() if name not in names} | more


@pytest.fixture
def make(tmp_path):
    """Run make in a folder of this name, on a Makefile and nothing to install; return what it printed."""
    if os.name == "nt" or shutil.which("make") is None:
        pytest.skip("make is not installed")

    def run(name, **more):
        folder = tmp_path / name
        (folder / "helpers").mkdir(parents=True, exist_ok=True)
        (folder / "helpers" / "__init__.py").touch()
        (folder / "requirements.lock").touch()
        for file in ("Makefile", "pyproject.toml"):
            if not (folder / file).exists():
                shutil.copy(ROOT / file, folder)
        # This may be running in a make of its own, which tells its children about itself.
        environment = environment_without("PYTHONPATH", "MAKEFLAGS", "MFLAGS", "MAKELEVEL", **more)
        command = ["make", f"PYTHON={sys.executable}", "PIP_INSTALL=true", "setup"]
        ran = subprocess.run(command, cwd=folder, env=environment, capture_output=True)
        return ran.returncode, (ran.stdout + ran.stderr).decode()

    return run


MAKING = "Making the environment"


@pytest.mark.parametrize("name", ["Ünï cödé 日本 Łódź", """a $HOME # %41 "q" it's & (x), `id`"""])
def test_a_folder_may_have_any_letters_in_any_locale(make, tmp_path, name):
    code, printed = make(name, LC_ALL="C")
    assert (code, MAKING in printed) == (0, True), printed
    python = tmp_path / name / ".venv" / "bin" / "python"
    command = [python, "-c", "import helpers; print(ascii(helpers.__file__))"]
    environment = environment_without("PYTHONPATH", "PYTHONUTF8", LC_ALL="C")
    ran = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert ran.stdout.strip() == ascii(str(tmp_path / name / "helpers" / "__init__.py")), ran.stderr
    # It is made once, however Python writes, and anew where it was moved to.
    for again in ({"LC_ALL": "C"}, {"PYTHONIOENCODING": "cp1252:strict"}, {"PYTHONIOENCODING": "utf-16"}):
        code, printed = make(name, **again)
        assert (code, MAKING in printed) == (0, False), printed
    (tmp_path / name).rename(tmp_path / f"{name}, moved")
    code, printed = make(f"{name}, moved")
    assert (code, MAKING in printed) == (0, True), printed


@pytest.mark.parametrize("name", ["a:b", b"caf\xe9"], ids=["a colon", "no UTF-8"])
def test_a_folder_that_python_cannot_work_in_is_one_plain_sentence(make, name):
    if isinstance(name, bytes) and sys.platform != "linux":
        pytest.skip("elsewhere all names of files are in Unicode")
    code, printed = make(os.fsdecode(name))
    assert code != 0
    sentence, end = printed.splitlines()
    assert sentence.startswith(
        "Python can't work in a folder with a colon in its path, or letters not in UTF"
    )
    assert end.startswith("make: ***")
