"""doctor names what is missing and never shows a traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from harness import doctor, probes
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
