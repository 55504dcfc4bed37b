"""Builds the extension harness._cuda. Metadata lives in pyproject.toml.

In place, without pip:  python setup.py build_ext --inplace
TORCH_CUDA_ARCH_LIST    archs to build (default: the visible GPU's, else 8.0+PTX;9.0a)
CUDA_HOME, CXX, MAX_JOBS  as usual; the preflight block says what was chosen and why
CVT_SKIP_CUDA=1         leave the extension out
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import setuptools

ROOT = Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT))  # an isolated build does not have the checkout on its path

from harness import compilers, preflight  # noqa: E402

# Only these compile. The rest (egg_info, dist_info, sdist, --version) needs neither torch nor nvcc.
BUILD_COMMANDS = {
    "build",
    "build_ext",
    "bdist_wheel",
    "bdist_egg",
    "develop",
    "editable_wheel",
    "install",
}
OLDEST_SETUPTOOLS = 77  # the first that reads pyproject.toml's licence expression
CXX_FLAGS = ["-O3", "-fvisibility=hidden"]
# No -std: torch adds the one its headers want. No flag may contain "arch": torch would then leave
# its own arch flags out; archs go through TORCH_CUDA_ARCH_LIST.
NVCC_FLAGS = ["-O3", "-lineinfo"]
BUILD_INFO = ROOT / "build" / "generated" / "cvt_build_info.h"


def checked_preflight() -> preflight.Preflight:
    """Prints what will be used, or ends the process with one line."""
    found = preflight.inspect()
    if found.fatal:
        raise SystemExit(f"cuda-vs-triton: {found.fatal[0].text}")
    print(preflight.render(found), flush=True)
    return found


def refuse_old_setuptools(version: str) -> None:
    """Older ones fail on pyproject.toml with a page of schema instead of a reason."""
    if int(version.split(".")[0]) < OLDEST_SETUPTOOLS:
        raise SystemExit(
            f"cuda-vs-triton: setuptools {version} is too old, wanted {OLDEST_SETUPTOOLS} or "
            "newer; pip install -U setuptools"
        )


def write_build_info(found: preflight.Preflight) -> None:
    """The facts that harness._cuda.build_info() returns; touched only when they change."""
    facts = {
        "TORCH": found.torch_version,
        "CUDA": found.torch_cuda,
        "NVCC": found.nvcc.version if found.nvcc else "",
        "FLAGS": " ".join(NVCC_FLAGS),
        "ARCH_LIST": found.arch_list,
        "HOST_COMPILER": found.host_version,
        "PTXAS": compilers.ptxas_version(found.nvcc.home) if found.nvcc else "",
    }
    quoted = {
        name: value.replace("\\", "\\\\").replace('"', '\\"') for name, value in facts.items()
    }
    text = "".join(f'#define CVT_{name} "{value}"\n' for name, value in quoted.items())
    if not BUILD_INFO.exists() or BUILD_INFO.read_text() != text:
        BUILD_INFO.parent.mkdir(parents=True, exist_ok=True)
        BUILD_INFO.write_text(text)


def cudart_folder(home: str) -> Path | None:
    """Where NVIDIA's wheels keep the runtime by its soname alone; None when -lcudart will do."""
    folders = [Path(home, name) for name in ("lib64", "lib", "targets/x86_64-linux/lib")]
    if any((folder / "libcudart.so").exists() for folder in folders):
        return None
    return next((folder for folder in folders if list(folder.glob("libcudart.so.*"))), None)


def extension(found: preflight.Preflight) -> dict[str, Any]:
    """The arguments of setup() that build harness._cuda."""
    assert found.nvcc is not None
    # Before torch.utils.cpp_extension is imported: it reads them once.
    os.environ["CUDA_HOME"] = found.nvcc.home
    os.environ["TORCH_CUDA_ARCH_LIST"] = found.arch_list
    os.environ.setdefault("CXX", found.host_compiler)
    os.environ["MAX_JOBS"] = str(found.jobs)
    from torch.utils.cpp_extension import BuildExtension, CUDAExtension

    sources = [*_relative("*.cpp"), *_relative("*/*.cpp"), *_relative("*.cu"), *_relative("*/*.cu")]
    headers = [*_relative("*.h"), *_relative("*/*.h"), *_relative("*/*.cuh"), str(BUILD_INFO)]
    module = CUDAExtension(
        "harness._cuda",
        sources=sources,
        include_dirs=[str(ROOT / "csrc"), str(BUILD_INFO.parent)],
        extra_compile_args={"cxx": CXX_FLAGS, "nvcc": NVCC_FLAGS},
        depends=headers,
    )
    folder = cudart_folder(found.nvcc.home)
    if folder is not None:
        module.libraries = [name for name in module.libraries if name != "cudart"]
        module.library_dirs.append(str(folder))
        soname = f"libcudart.so.{found.nvcc.major}"
        module.extra_link_args = [*(module.extra_link_args or []), f"-l:{soname}"]
    return {"ext_modules": [module], "cmdclass": {"build_ext": BuildExtension}}


def _relative(pattern: str) -> list[str]:
    return sorted(str(path.relative_to(ROOT)) for path in (ROOT / "csrc").glob(pattern))


def arguments() -> dict[str, Any]:
    """What to add to the metadata: nothing, or the extension."""
    if not BUILD_COMMANDS & set(sys.argv[1:]) or os.environ.get("CVT_SKIP_CUDA", "0") == "1":
        return {}
    os.chdir(ROOT)  # sources are relative to here
    found = checked_preflight()
    write_build_info(found)
    return extension(found)


refuse_old_setuptools(setuptools.__version__)
setuptools.setup(**arguments())
