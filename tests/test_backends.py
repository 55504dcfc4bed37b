"""Why a backend cannot run, in words that say what to do."""

from __future__ import annotations

import os
import sys
import types

import pytest

import harness
from harness import availability, backends
from harness.registry import REPOSITORY

torch = pytest.importorskip("torch")


def fake_extension(monkeypatch, tmp_path, built_for: str, age_s: float):
    """A module in the place of the compiled one, `age_s` seconds older than now."""
    binary = tmp_path / "_cuda.so"
    binary.write_bytes(b"")
    newest = max(path.stat().st_mtime for path in (REPOSITORY / "csrc").rglob("*"))
    os.utime(binary, (newest - age_s, newest - age_s))
    module = types.ModuleType("harness._cuda")
    module.__file__ = str(binary)
    module.build_info = lambda: {"torch": built_for}  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "harness._cuda", module)
    monkeypatch.setattr(harness, "_cuda", module, raising=False)


def test_a_binary_of_another_torch_is_refused_by_name(monkeypatch, tmp_path):
    fake_extension(monkeypatch, tmp_path, "1.2.3+cu130", age_s=-10)
    problem = availability.extension_problem.__wrapped__()
    assert "built for torch 1.2.3" in problem
    assert f"found torch {torch.__version__}" in problem
    assert "make clean build" in problem


def test_a_binary_older_than_its_sources_is_not_timed_in_their_name(monkeypatch, tmp_path):
    fake_extension(monkeypatch, tmp_path, torch.__version__, age_s=10)
    assert "older than csrc/" in availability.extension_problem.__wrapped__()
    fake_extension(monkeypatch, tmp_path, torch.__version__, age_s=-10)
    assert availability.extension_problem.__wrapped__() == ""


def test_a_missing_binary_names_the_remedy(monkeypatch):
    monkeypatch.delattr(harness, "_cuda", raising=False)
    monkeypatch.setitem(sys.modules, "harness._cuda", None)
    assert "make build" in availability.extension_problem.__wrapped__()


@pytest.mark.parametrize(
    ("ptx", "form"),
    [
        ("wgmma.mma_async.sync.aligned", "wgmma"),
        ("mma.sync.aligned.m16n8k16", "mma.sync"),
        ("tcgen05.mma", "tcgen05"),
        ("fma.rn.f32", "simt"),
    ],
)
def test_the_matrix_unit_is_read_from_the_ptx(ptx, form):
    assert backends.matrix_form(ptx) == form
