"""doctor names what is missing and never shows a traceback."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from harness import doctor, extension_probe, probes
from harness.doctor import diagnose, render, verdict
from harness.probes import Finding, covers

ROOT = Path(__file__).resolve().parent.parent


def run_doctor(*flags: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *flags, "-m", "harness.doctor"],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )


def named(findings: list[Finding], name: str) -> Finding:
    return next(finding for finding in findings if finding.name == name)


def test_this_environment_has_all_that_is_required():
    findings = diagnose()
    assert not [finding for finding in findings if finding.required and not finding.ok]
    assert len({finding.name for finding in findings}) == len(findings)


@pytest.mark.parametrize(
    ("value", "code", "last_line"),
    [("", 0, "bench runs without a GPU"), ("77", 1, "bench cannot run")],
)
def test_hidden_gpu_is_fine_and_missing_gpu_is_not(value, code, last_line):
    done = run_doctor(CUDA_VISIBLE_DEVICES=value)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    assert f"CUDA_VISIBLE_DEVICES is {value!r}" in done.stdout
    assert done.stdout.splitlines()[-1].startswith(last_line)


def test_bare_interpreter_fails_with_remedies():
    done = run_doctor("-S", "-E", "-s")
    assert done.returncode == 1
    assert "Traceback" not in done.stdout + done.stderr
    assert "pip install 'torch>=2.11'" in done.stdout
    assert "bench cannot run" in done.stdout.splitlines()[-1]


@pytest.mark.parametrize("module", ["torch", "triton", "harness.preflight", "pynvml"])
def test_missing_module_costs_only_its_own_lines(module, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)
    text = render(diagnose())
    assert "probe failed" not in text
    assert "numpy" in text
    assert "Traceback" not in text


def test_missing_torch_is_required_and_missing_triton_is_not(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setitem(sys.modules, "triton", None)
    findings = diagnose()
    assert (named(findings, "torch").ok, named(findings, "torch").required) == (False, True)
    assert (named(findings, "triton").ok, named(findings, "triton").required) == (False, False)


def test_old_torch_and_cpu_torch_are_told_apart(monkeypatch):
    def fake(version: str, cuda: str | None) -> Finding:
        module = SimpleNamespace(__version__=version, version=SimpleNamespace(cuda=cuda))
        monkeypatch.setitem(sys.modules, "torch", module)
        return probes._torch()[0]

    assert fake("2.12.0+cu130", "13.0").ok
    old, cpu = fake("2.3.1+cu121", "12.1"), fake("2.12.0+cpu", None)
    assert (old.ok, old.required) == (False, True)
    assert (cpu.ok, cpu.required) == (False, False)
    assert "CPU-only" in cpu.detail


def test_unwritable_home_is_named(tmp_path, monkeypatch):
    not_a_folder = tmp_path / "home"
    not_a_folder.write_text("")
    monkeypatch.setenv("HOME", str(not_a_folder))
    monkeypatch.delenv("TRITON_CACHE_DIR", raising=False)
    monkeypatch.delenv("TRITON_HOME", raising=False)
    found = named(diagnose(), "Triton cache")
    assert not found.ok
    assert "TRITON_CACHE_DIR" in found.remedy
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    assert named(diagnose(), "Triton cache").ok


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_read_only_folder_is_not_writable(tmp_path):
    tmp_path.chmod(0o555)
    assert not probes._writable(tmp_path / "cache")


def test_missing_c_compiler_and_libcuda_are_named(monkeypatch):
    pytest.importorskip("triton")
    monkeypatch.setattr(probes.shutil, "which", lambda _: None)
    monkeypatch.setattr(probes, "_loads_library", lambda _: False)
    findings = probes._triton_launcher()
    assert not named(findings, "C compiler").ok
    assert not named(findings, "libcuda.so.1").ok


def test_broken_probe_is_a_finding(monkeypatch):
    def _broken() -> list[Finding]:
        raise RuntimeError("first line\nsecond line")

    monkeypatch.setattr(doctor, "PROBES", (_broken,))
    assert diagnose() == [Finding("broken", False, "probe failed: RuntimeError: first line")]


def test_render_shows_remedies_of_failures_only():
    text = render([Finding("a", True, "fine", "unused"), Finding("b", False, "bad", "do this")])
    assert "do this" in text
    assert "unused" not in text


def test_verdict_names_the_sides_that_work():
    found = [Finding(name, name != "extension", "") for name in ("GPU", "extension", "triton")]
    assert verdict(found) == "bench checks and times kernels here; sides: Triton."


@pytest.mark.parametrize(
    ("archs", "capability", "expected"),
    [
        ("9.0a", (9, 0), True),
        ("9.0a", (10, 0), False),
        ("8.0", (8, 9), True),
        ("8.9", (8, 0), False),
        ("8.0", (9, 0), False),
        ("8.0+PTX;9.0a", (12, 0), True),
        ("8.0 9.0", (9, 0), True),
        ("", (9, 0), False),
    ],
)
def test_arch_list_covers_a_card(archs, capability, expected):
    assert covers(archs, capability) is expected


# ---- a built extension that is damaged -----------------------------------------------------------

CUT_BYTES = 1 << 20


def built() -> Path:
    files = sorted((ROOT / "harness").glob("_cuda*.so"))
    if not files:
        pytest.skip("the CUDA extension is not built here")
    return files[0]


def cut(folder: Path, n_bytes: int) -> Path:
    """The first bytes of the built extension, under its name."""
    file = folder / built().name
    with built().open("rb") as whole:
        file.write_bytes(whole.read(n_bytes))
    return file


@pytest.fixture(scope="module")
def checkout_with_a_cut_extension(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("checkout")
    for folder in ("harness", "csrc", "triton_kernels"):
        hidden = shutil.ignore_patterns("*.so", "__pycache__")
        shutil.copytree(ROOT / folder, root / folder, ignore=hidden)
    cut(root / "harness", CUT_BYTES)
    return root


def in_checkout(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    kept = {k: v for k, v in os.environ.items() if k not in ("TRITON_INTERPRET", "PYTHONPATH")}
    own = {"CUDA_VISIBLE_DEVICES": "", "CVT_EXPLAIN_CACHE": str(root / "cache")}
    return subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=root,
        env=kept | own | {"TRITON_CACHE_DIR": str(root / "cache")},
        capture_output=True,
        text=True,
        timeout=500,
    )


def test_doctor_names_a_cut_extension_and_lives(checkout_with_a_cut_extension):
    done = in_checkout(checkout_with_a_cut_extension, "harness.doctor")
    assert done.returncode == 0, done.stderr
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("  no  extension"))
    assert f"is damaged ({CUT_BYTES} of at least " in line and "make clean build" in line


def test_explain_names_a_cut_extension_and_lives(checkout_with_a_cut_extension):
    pytest.importorskip("triton")
    command = ("harness", "explain", "vector_add", "--arch", "80", "--json", "--side")
    done = in_checkout(checkout_with_a_cut_extension, *command, "triton")
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    assert found["variants"] and "is damaged" in found["problems"][0]
    assert set(found["tools"]["cuda"].values()) == {None}
    done = in_checkout(checkout_with_a_cut_extension, *command, "cuda")
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert "is damaged" in done.stderr and "make clean build" in done.stderr


@pytest.mark.parametrize("share", [0.0, 0.001, 0.5])
def test_an_extension_that_kills_who_imports_it_kills_a_child(tmp_path, monkeypatch, share):
    """Also where its headers do not give it away."""
    file = cut(tmp_path, int(share * built().stat().st_size))
    assert share == 0 or extension_probe.damage(file)
    monkeypatch.setattr(extension_probe, "damage", lambda _: "")
    facts, problem = extension_probe.build_info(file)
    assert facts == {}
    assert "\n" not in problem and "; run `make " in problem
    if share == 0.5:
        assert "ends the process by SIGBUS" in problem


def test_a_whole_extension_tells_its_build():
    assert extension_probe.damage(built()) == ""
    facts, problem = extension_probe.build_info(built())
    assert problem == "" and facts["arch_list"]


@pytest.mark.parametrize(
    "content", [b"", b"\x7fELF", b"MZ" * 100, b"\x7fELF\x02\x01" + b"\xff" * 90]
)
def test_headers_that_are_none_end_nothing(tmp_path, content):
    file = tmp_path / "_cuda.so"
    file.write_bytes(content)
    assert "\n" not in extension_probe.damage(file)
    assert extension_probe.damage(tmp_path / "none.so") == ""


def test_bench_names_a_cut_extension_and_lives(checkout_with_a_cut_extension):
    """Its parent asks for the versions, its worker whether the CUDA side can run."""
    code = (
        "from harness.availability import extension_problem\n"
        "from harness.machine import software_facts\n"
        "print(software_facts()['extension'], extension_problem())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=checkout_with_a_cut_extension,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("None the CUDA extension _cuda")
    assert "is damaged" in done.stdout and "make clean build" in done.stdout


def test_doctor_tries_the_extension_in_a_child_first(tmp_path, monkeypatch):
    file = cut(tmp_path, built().stat().st_size // 2)
    monkeypatch.setattr(extension_probe, "extension_file", lambda: file)
    monkeypatch.setattr(extension_probe, "damage", lambda _: "")  # as where headers look whole
    (found,) = probes._extension()
    assert not found.ok and "ends the process by SIGBUS" in found.detail
