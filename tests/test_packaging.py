"""What is installed, what the Makefile does, and whether the pages tell the truth."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")], key=str)
MAKEFILE = (ROOT / "Makefile").read_text()
TARGETS = set(re.findall(r"^([a-z-]+):.*?## ", MAKEFILE, re.MULTILINE))


def run(*command: str, cwd: Path = ROOT, **environment: str) -> subprocess.CompletedProcess[str]:
    # MAKEFLAGS and MAKEOVERRIDES of an outer `make test` must not reach the makes started here.
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("MAKE")}
    return subprocess.run(
        command,
        cwd=cwd,
        env={**inherited, "MFLAGS": "", **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )


# --- the wheel and the name triton_kernels --------------------------------------------------------


@pytest.fixture(scope="module")
def wheel_names(tmp_path_factory) -> list[str]:
    """Names in a wheel built without the CUDA side, from a copy: the checkout stays clean."""
    try:
        if int(metadata.version("setuptools").split(".")[0]) < 77:
            pytest.skip("setuptools older than 77")
    except metadata.PackageNotFoundError:
        pytest.skip("setuptools is not installed")
    pytest.importorskip("pip")
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    for name in ("harness", "triton_kernels", "csrc"):
        ignored = shutil.ignore_patterns("__pycache__", "*.so")
        shutil.copytree(ROOT / name, source / name, ignore=ignored)
    flags = ("--no-build-isolation", "--no-deps", "--no-index", "--disable-pip-version-check", "-q")
    command = (sys.executable, "-m", "pip", "wheel", *flags, "-w", str(out), str(source))
    done = run(*command, cwd=source, CVT_SKIP_CUDA="1")
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = out.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()


def test_install_brings_one_top_level_name(wheel_names):
    tops = {name.split("/")[0] for name in wheel_names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"harness"}


def test_wheel_holds_every_module_the_specs_and_the_licence(wheel_names):
    sources = {*(ROOT / "harness").glob("*.py"), *(ROOT / "harness" / "specs").glob("*.py")}
    expected = {path.relative_to(ROOT).as_posix() for path in sources}
    expected |= {
        path.relative_to(ROOT).as_posix() for path in (ROOT / "harness/tuned").glob("*/*.json")
    }
    expected.add("harness/effort/concepts.json")
    assert expected <= set(wheel_names)
    assert any(name.endswith("LICENSE") for name in wheel_names)


def test_packages_are_listed_by_hand_and_complete():
    listed = re.search(r"^packages = \[(.*)\]", (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    found = {
        ".".join(p.parent.relative_to(ROOT).parts) for p in ROOT.glob("harness/**/__init__.py")
    }
    assert set(re.findall(r'"([\w.]+)"', listed[1])) == found


def test_triton_kernels_is_a_plain_folder():
    assert (ROOT / "triton_kernels").is_dir()
    assert not (ROOT / "triton_kernels" / "__init__.py").exists()


def test_a_real_triton_kernels_package_wins_outside_and_ours_inside(tmp_path):
    """From the repository's root, the import finds theirs; the harness still loads ours."""
    theirs = tmp_path / "site" / "triton_kernels"
    theirs.mkdir(parents=True)
    (theirs / "__init__.py").write_text("OWNER = 'theirs'\n")
    (theirs / "demo.py").write_text("OWNER = 'theirs'\n")
    ours = tmp_path / "root" / "triton_kernels"
    ours.mkdir(parents=True)
    (ours / "demo.py").write_text("OWNER = 'ours'\n")
    program = (
        "import pathlib, triton_kernels, triton_kernels.demo\n"
        "assert triton_kernels.OWNER == triton_kernels.demo.OWNER == 'theirs'\n"
        "from harness.registry import load_triton\n"
        f"assert load_triton('demo', pathlib.Path({str(ours.parent)!r})).OWNER == 'ours'\n"
        "assert triton_kernels.demo.OWNER == 'theirs'\n"
    )
    done = run(sys.executable, "-c", program, PYTHONPATH=str(theirs.parent))
    assert done.returncode == 0, done.stderr


# --- the Makefile ---------------------------------------------------------------------------------

# Stands for an interpreter: logs its arguments, and succeeds or fails as the test asks.
FAKE_PYTHON = """#!/usr/bin/env bash
echo "$*" >> "$FAKE_LOG"
case "$*" in
  *build_ext*) exit "${FAKE_BUILD:-0}" ;;
  *harness.preflight*) exit "${FAKE_PREFLIGHT:-0}" ;;
  *"harness bench"*) exit "${FAKE_BENCH:-0}" ;;
esac
"""


@pytest.fixture
def fake_make(tmp_path):
    """Runs the Makefile in an empty folder with a fake PYTHON; returns (result, logged calls)."""
    shutil.copy(ROOT / "Makefile", tmp_path)
    python, log = tmp_path / "fake-python", tmp_path / "log"
    python.write_text(FAKE_PYTHON)
    python.chmod(0o755)

    def call(*arguments: str, **environment: str):
        log.write_text("")
        command = ("make", "--no-print-directory", f"PYTHON={python}", *arguments)
        done = run(*command, cwd=tmp_path, FAKE_LOG=str(log), CVT_SKIP_CUDA="0", **environment)
        return done, log.read_text().splitlines()

    return call


def test_bench_builds_and_passes_arguments_and_exit_status_on(fake_make):
    done, calls = fake_make("bench", "ARGS=--op softmax --case 'N>=4096'")
    assert done.returncode == 0, done.stderr
    assert calls == [
        "setup.py build_ext --inplace",
        "-m harness bench --op softmax --case N>=4096",
    ]
    assert fake_make("bench", FAKE_BENCH="1")[0].returncode != 0


def test_missing_nvcc_does_not_stop(fake_make):
    done, calls = fake_make("check", FAKE_BUILD="1", FAKE_PREFLIGHT="1")
    assert done.returncode == 0
    assert "going on with Triton and torch" in done.stdout
    assert calls[-1].startswith("-m harness check")


def test_broken_build_stops_and_names_the_way_on(fake_make):
    done, calls = fake_make("check", FAKE_BUILD="1")
    assert done.returncode != 0
    assert "CVT_SKIP_CUDA=1" in done.stderr
    assert "-m harness check" not in " ".join(calls)


def test_given_interpreter_means_no_venv_and_no_pip(fake_make, tmp_path):
    for target in ("bench", "test", "check", "lint", "build"):
        _, calls = fake_make(target)
        assert calls
        assert not [call for call in calls if re.search(r"\bpip\b|venv", call)]
    assert not (tmp_path / ".venv").exists()


@pytest.mark.parametrize("target", ["compare", "plots", "tune", "readme"])
def test_target_without_its_argument_says_how_it_is_called(target, fake_make):
    done, _ = fake_make(target)
    assert done.returncode != 0
    assert f"make {target} " in done.stderr


@pytest.mark.parametrize(
    "call", [("report", "RUN=none"), ("plots", "RUN=none"), ("compare", "BASE=none", "NEW=none")]
)
def test_nothing_is_installed_for_a_run_that_is_not_there(call, tmp_path):
    shutil.copy(ROOT / "Makefile", tmp_path)
    done = run("make", *call, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "none does not exist; want a run's folder" in done.stderr
    assert not (tmp_path / ".venv").exists()


def test_every_target_is_phony_documented_and_listed_by_help():
    phony = set(re.search(r"^\.PHONY: (.*)$", MAKEFILE, re.MULTILINE)[1].split())
    assert phony - {"ext", "needs-run", "needs-base"} == TARGETS
    listed = run("make").stdout
    assert all(re.search(rf"^  {target} ", listed, re.MULTILINE) for target in TARGETS)


def test_subcommands_of_the_makefile_exist():
    pytest.importorskip("harness.cli")
    for command in sorted(set(re.findall(r"-m harness (\w+)", MAKEFILE))):
        done = run(sys.executable, "-m", "harness", command, "--help")
        assert done.returncode == 0, f"{command}: {done.stderr}"


# --- the pages ------------------------------------------------------------------------------------


def test_licence_and_readme_length():
    assert (ROOT / "LICENSE").read_text().startswith("MIT License")
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150


def test_readme_table_stands_between_one_pair_of_marks():
    text = (ROOT / "README.md").read_text()
    for mark in ("<!-- results:begin -->", "<!-- results:end -->"):
        assert text.count(mark) == 1
    assert text.index("results:begin") < text.index("results:end")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_page_names_only_make_targets_that_exist(page):
    text = re.sub(r"^.*\(planned\).*(\n(?!\n|- |#).*)*", "", page.read_text(), flags=re.MULTILINE)
    code = re.findall(r"```.*?```|`[^`\n]+`", text, re.DOTALL)
    pattern = r"\bmake (?:[A-Z0-9]+=\S+ )?([a-z][a-z-]*)"
    named = {target for part in code for target in re.findall(pattern, part)}
    assert named <= TARGETS


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_relative_links_and_their_headings_exist(page):
    has_reference = any(ROOT.glob("results/*/reference"))
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, heading = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if "results" in target.parts and not has_reference:
            continue  # before the first committed run
        assert target.exists(), link
        if re.fullmatch(r"L\d+(-L\d+)?", heading):
            lines = target.read_text().count("\n")
            assert all(int(n) <= lines for n in re.findall(r"\d+", heading)), link
        elif heading:
            slugs = re.findall(r"^#+ (.*)$", target.read_text(), re.MULTILINE)
            assert heading in {re.sub(r"[^\w -]", "", s).lower().replace(" ", "-") for s in slugs}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_page_has_no_local_paths_and_no_loose_ends(page):
    absolute_path = r"(?<![\w./:>*])/(?!path/)[a-z]+/\S*"
    assert not re.findall(rf"{absolute_path}|TODO|FIXME|XXX", page.read_text())
