"""The preflight: what it finds, what it refuses, in which words. No real compiler is run."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness import compilers, preflight

ROOT = Path(__file__).resolve().parent.parent


def fake_torch(cuda: str | None = "13.0", capabilities: tuple[tuple[int, int], ...] = ()) -> Any:
    return SimpleNamespace(
        __version__="2.14.0",
        version=SimpleNamespace(cuda=cuda),
        cuda=SimpleNamespace(
            is_available=lambda: bool(capabilities),
            device_count=lambda: len(capabilities),
            get_device_capability=lambda i: capabilities[i],
        ),
    )


@pytest.fixture(autouse=True)
def bare_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """No compiler but those a test puts on PATH: wheels and /usr/local are hidden."""
    monkeypatch.setattr(compilers, "wheel_folders", lambda: iter(()))
    original = compilers._candidates
    monkeypatch.setattr(
        compilers,
        "_candidates",
        lambda env, cuda: (
            c for c in original(env, cuda) if not str(c[0]).startswith("/usr/local")
        ),
    )


def script(folder: Path, name: str, prints: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\necho '{prints}'\n")
    path.chmod(0o755)
    return path


def fake_nvcc(folder: Path, version: str) -> Path:
    return script(folder, "nvcc", f"Cuda compilation tools, release {version}, V{version}.1")


def inspect(env: dict[str, str], torch: Any = None) -> preflight.Preflight:
    torch = torch or fake_torch()
    return preflight.inspect(env, load_torch=lambda: torch)


def machine(folder: Path, nvcc: str = "13.0", gcc: str = "12.2.0") -> dict[str, str]:
    if nvcc:
        fake_nvcc(folder, nvcc)
    if gcc:
        script(folder, "g++", gcc)
    return {"PATH": str(folder), "TORCH_CUDA_ARCH_LIST": "9.0a"}


def texts(pf: preflight.Preflight) -> str:
    return "\n".join(problem.text for problem in pf.problems)


def test_a_matching_machine_has_no_problem(tmp_path: Path) -> None:
    pf = inspect(machine(tmp_path))
    assert pf.problems == ()
    assert pf.nvcc is not None and pf.nvcc.version == "13.0" and pf.nvcc.why == "on PATH"
    assert pf.host_version == "gcc 12.2.0"
    assert not preflight.needs_nvcc(pf)


def test_another_major_version_refuses(tmp_path: Path) -> None:
    pf = inspect(machine(tmp_path, nvcc="12.4"))
    assert len(pf.fatal) == 1
    assert "nvcc 12.4" in pf.fatal[0].text and "torch's CUDA 13.0" in pf.fatal[0].text
    assert preflight.needs_nvcc(pf)


def test_another_minor_version_is_a_note(tmp_path: Path) -> None:
    pf = inspect(machine(tmp_path, nvcc="13.2"))
    assert not pf.fatal and "13.2" in texts(pf) and "13.0" in texts(pf)
    assert not preflight.needs_nvcc(pf)


def test_no_nvcc_is_one_line_with_the_remedy(tmp_path: Path) -> None:
    pf = inspect(machine(tmp_path, nvcc=""))
    assert len(pf.fatal) == 1
    assert "\n" not in pf.fatal[0].text
    assert 'pip install "cuda-toolkit[nvcc,cudart,cccl,crt]==13.0.*"' in pf.fatal[0].text
    assert preflight.needs_nvcc(pf)


def test_cuda_home_decides_even_when_it_is_wrong(tmp_path: Path) -> None:
    fake_nvcc(tmp_path / "toolkit" / "bin", "12.8")
    env = machine(tmp_path / "path") | {"CUDA_HOME": str(tmp_path / "toolkit")}
    pf = inspect(env)
    assert pf.nvcc is not None and pf.nvcc.version == "12.8"
    assert "unset CUDA_HOME" in pf.fatal[0].text


def test_an_nvcc_of_torchs_version_is_preferred(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = machine(tmp_path / "path", nvcc="12.4")
    fake_nvcc(tmp_path / "cu13" / "bin", "13.0")
    monkeypatch.setattr(compilers, "wheel_folders", lambda: iter([tmp_path / "cu13"]))
    pf = inspect(env)
    assert pf.nvcc is not None and pf.nvcc.why == "from NVIDIA's wheels"
    assert pf.nvcc.home == str(tmp_path / "cu13")
    assert not pf.fatal


def test_a_wrapper_script_leads_to_its_toolkit(tmp_path: Path) -> None:
    toolkit = tmp_path / "toolkit"
    real = fake_nvcc(toolkit / "bin", "13.0")
    env = machine(tmp_path / "path", nvcc="")
    wrapper = tmp_path / "path" / "nvcc"
    wrapper.write_text(
        f'#!/bin/sh\n[ "$1" = --dryrun ] && echo "#\\$ TOP={toolkit}/bin/.." || exec {real}\n'
    )
    wrapper.chmod(0o755)
    pf = inspect(env)
    assert pf.nvcc is not None and pf.nvcc.home == str(toolkit) and pf.nvcc.path == str(real)


@pytest.mark.parametrize(
    ("gcc", "says"), [("8.5.0", "too old"), ("16.1.0", "too new"), ("", "no C++ compiler")]
)
def test_a_host_compiler_that_will_not_do_refuses(tmp_path: Path, gcc: str, says: str) -> None:
    pf = inspect(machine(tmp_path, gcc=gcc))
    assert len(pf.fatal) == 1 and says in pf.fatal[0].text


def test_cpu_only_torch_refuses(tmp_path: Path) -> None:
    pf = inspect(machine(tmp_path), fake_torch(cuda=None))
    assert "without CUDA" in pf.fatal[0].text and preflight.WITHOUT_CUDA in pf.fatal[0].text
    assert not preflight.needs_nvcc(pf)


def test_missing_torch_names_both_ways_out(tmp_path: Path) -> None:
    def missing() -> Any:
        raise ModuleNotFoundError("No module named 'torch'")

    pf = preflight.inspect(machine(tmp_path), load_torch=missing)
    assert preflight.NO_ISOLATION in pf.fatal[0].text
    assert preflight.WITHOUT_CUDA in pf.fatal[0].text


def test_no_gpu_and_no_arch_list_is_the_default_and_said(tmp_path: Path) -> None:
    env = machine(tmp_path)
    del env["TORCH_CUDA_ARCH_LIST"]
    pf = inspect(env)
    assert pf.arch_list == "8.0+PTX;9.0a" and not pf.fatal
    assert "8.0+PTX;9.0a" in texts(pf)


def test_the_visible_gpu_decides_the_arch(tmp_path: Path) -> None:
    env = machine(tmp_path)
    del env["TORCH_CUDA_ARCH_LIST"]
    assert inspect(env, fake_torch(capabilities=((9, 0),))).arch_list == "9.0a"
    assert inspect(env, fake_torch(capabilities=((8, 6), (9, 0)))).arch_list == "8.6;9.0a"
    assert inspect(env, fake_torch(capabilities=((7, 5),))).fatal


@pytest.mark.parametrize(
    ("archs", "wrong"),
    [("banana", "banana"), ("9.0a;sm_90", "sm_90"), ("9.0a 8.0+PTX", ""), ("Hopper;8.6", "")],
)
def test_an_arch_that_is_none_is_named(tmp_path: Path, archs: str, wrong: str) -> None:
    pf = inspect(machine(tmp_path) | {"TORCH_CUDA_ARCH_LIST": archs})
    assert bool(pf.fatal) is bool(wrong)
    assert f"and {wrong} is no architecture" in texts(pf) if wrong else pf.arch_list == archs


def test_the_block_names_every_fact(tmp_path: Path) -> None:
    env = machine(tmp_path, nvcc="12.4") | {"MAX_JOBS": "3"}
    block = preflight.render(inspect(env))
    for fact in ("2.14.0", "CUDA 13.0", "12.4", "on PATH", "gcc 12.2.0", "9.0a", "3", "error: "):
        assert fact in block


NO_TORCH = "import sys\nsys.modules['torch'] = None\n"


def without_torch(folder: Path, *command: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Runs Python in a process where importing torch fails and no nvcc is on PATH."""
    folder.mkdir(exist_ok=True)
    (folder / "sitecustomize.py").write_text(NO_TORCH)
    clean = {k: v for k, v in os.environ.items() if k not in ("CUDA_HOME", "CUDA_PATH")}
    clean |= {"PYTHONPATH": str(folder), "PATH": "/usr/bin:/bin", **env}
    return subprocess.run(
        [sys.executable, *command], cwd=ROOT, env=clean, capture_output=True, text=True, check=False
    )


OLD_SETUPTOOLS = int(metadata.version("setuptools").split(".")[0]) < 77


@pytest.mark.skipif(not OLD_SETUPTOOLS, reason="setuptools is new enough")
def test_an_old_setuptools_is_refused_in_one_line() -> None:
    done = subprocess.run(
        [sys.executable, "setup.py", "--version"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert "wanted 77 or newer" in done.stderr.splitlines()[-1]


@pytest.mark.skipif(OLD_SETUPTOOLS, reason="setuptools older than 77")
def test_metadata_commands_need_no_torch(tmp_path: Path) -> None:
    done = without_torch(tmp_path, "setup.py", "--version")
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(OLD_SETUPTOOLS, reason="setuptools older than 77")
def test_a_build_without_torch_is_one_line(tmp_path: Path) -> None:
    done = without_torch(tmp_path, "setup.py", "build_ext", "--build-temp", str(tmp_path / "b"))
    assert done.returncode == 1
    assert done.stdout == ""
    assert len(done.stderr.strip().splitlines()) == 1 and preflight.WITHOUT_CUDA in done.stderr


@pytest.mark.skipif(OLD_SETUPTOOLS, reason="setuptools older than 77")
def test_skipping_the_cuda_side_needs_nothing(tmp_path: Path) -> None:
    done = without_torch(tmp_path, "setup.py", "build_ext", CVT_SKIP_CUDA="1")
    assert done.returncode == 0, done.stderr


def test_the_command_exits_1_when_something_is_fatal(tmp_path: Path) -> None:
    done = without_torch(tmp_path, "-m", "harness.preflight")
    assert done.returncode == 1 and "error: torch cannot be imported" in done.stdout
    assert without_torch(tmp_path, "-m", "harness.preflight", "--needs-nvcc").returncode == 1
