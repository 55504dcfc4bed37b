"""Facts of the ops against hand-computed values; the contract of three files a stem."""

from __future__ import annotations

import re

import pytest

from harness.registry import REPOSITORY, Registry, RegistryError
from harness.spec import BACKENDS, PEER_PACKAGES, Case, empty_outputs, short_extent

REGISTRY = Registry()


@pytest.mark.parametrize(
    ("stem", "dims", "dtype", "read", "written", "flops"),
    [
        ("vector_add", {"N": 1000}, "f32", 8000, 4000, 1000),
        ("vector_add", {"N": 7}, "bf16", 28, 14, 7),
        ("softmax", {"M": 3, "N": 5}, "f32", 60, 60, 75),
        ("softmax", {"M": 10, "N": 100}, "f16", 2000, 2000, 5000),
        # x 2*4 + w 4*3 + b 3 = 23 elements read, 2*3 written, 2*2*3*4 flops
        ("matmul_bias_relu", {"M": 2, "N": 3, "K": 4}, "bf16", 46, 12, 48),
        ("matmul_bias_relu", {"M": 1, "N": 1, "K": 0}, "f16", 2, 2, 0),
    ],
)
def test_bytes_and_flops_by_hand(stem, dims, dtype, read, written, flops):
    spec, case = REGISTRY.spec(stem), Case(dims)
    assert spec.bytes_read(case, dtype) == read
    assert spec.bytes_written(case, dtype) == written
    assert spec.flops(case) == flops


@pytest.mark.parametrize("stem", REGISTRY.stems)
def test_inputs_are_what_the_byte_formula_counts(stem):
    pytest.importorskip("torch")
    spec = REGISTRY.spec(stem)
    for case in spec.test_cases:
        for dtype in spec.dtypes:
            if spec.n_output_elements(case) > 1 << 20:
                continue
            tensors = spec.make_inputs(case, dtype, "cpu", 1)
            assert tuple(tensors) == spec.arguments
            counted = sum(t.numel() * t.element_size() for t in tensors.values())
            assert counted == spec.bytes_read(case, dtype)
            written = sum(t.numel() * t.element_size() for t in empty_outputs(spec, case, dtype))
            assert written == spec.bytes_written(case, dtype)


def test_reference_by_hand():
    torch = pytest.importorskip("torch")
    add = REGISTRY.spec("vector_add")
    t = {"x": torch.tensor([1.0, 2.0]), "y": torch.tensor([0.5, -2.0])}
    assert add.reference(t).tolist() == [1.5, 0.0]
    softmax = REGISTRY.spec("softmax")
    row = softmax.reference({"x": torch.log(torch.tensor([[1.0, 3.0]]))})
    assert row.tolist()[0] == pytest.approx([0.25, 0.75])
    matmul = REGISTRY.spec("matmul_bias_relu")
    t = {
        "x": torch.tensor([[1.0, 2.0]]),
        "w": torch.tensor([[3.0, -1.0], [4.0, 0.0]]),
        "b": torch.tensor([0.5, 0.5]),
    }
    assert matmul.reference(t).tolist() == [[11.5, 0.0]]


@pytest.mark.parametrize("stem", REGISTRY.stems)
def test_three_files_a_stem_or_a_stated_absence(stem):
    spec, files = REGISTRY.spec(stem), REGISTRY.files(stem)
    for side in ("cuda", "triton"):
        assert side in files or spec.absent.get(side), f"{stem} has no {side} file and no reason"
    for backend, reason in spec.absent.items():
        assert backend in BACKENDS
        assert len(reason) > 10
    assert (spec.library is None) == ("library" in spec.absent)
    assert set(spec.peers) <= set(PEER_PACKAGES)


@pytest.mark.parametrize("stem", REGISTRY.stems)
def test_both_sides_take_the_spec_arguments_in_order(stem):
    spec, files = REGISTRY.spec(stem), REGISTRY.files(stem)
    wanted = [*spec.arguments, *(output.name for output in spec.outputs)]
    triton_text = files["triton"].read_text()
    signature = re.search(rf"^def {stem}\((.*?)\)", triton_text, re.S | re.M)
    assert signature, f"triton_kernels/{stem}.py defines no launcher {stem}"
    names = [p.split(":")[0].strip() for p in signature[1].split("*")[0].split(",") if p.strip()]
    assert names == wanted
    bindings = (REPOSITORY / "csrc" / "bindings.cpp").read_text()
    block = re.search(rf'm\.def\("{stem}",.*?;', bindings, re.S)
    assert block, f"csrc/bindings.cpp binds no {stem}"
    bound = re.findall(r'arg\("(\w+)"\)', block[0])
    assert bound[: len(wanted)] == wanted
    assert stem in (REPOSITORY / "csrc" / "kernels.h").read_text()


@pytest.mark.parametrize("stem", REGISTRY.stems)
def test_every_rung_has_its_file_its_launcher_and_its_step(stem):
    spec = REGISTRY.spec(stem)
    bindings = (REPOSITORY / "csrc" / "bindings.cpp").read_text()
    declared = (REPOSITORY / "csrc" / "kernels.h").read_text()
    for backend, rungs in spec.ladders.items():
        for rung in rungs:
            assert REGISTRY.kernel_files(stem, backend, rung.name)[0].is_file()
            assert len(rung.step.split()) >= 3
            assert set(rung.dtypes) <= set(spec.dtypes)
            if backend == "cuda":
                assert f'm.def("{stem}_{rung.name}"' in bindings
                assert f" {stem}_{rung.name}(" in declared


@pytest.mark.parametrize("stem", REGISTRY.stems)
def test_cases_are_distinct_and_every_dtype_has_a_tolerance_with_a_reason(stem):
    spec = REGISTRY.spec(stem)
    for cases in (spec.bench_cases, spec.test_cases):
        names = [case.name for case in cases]
        assert len(names) == len(set(names))
    for output in spec.outputs:
        assert set(output.tolerances) == set(spec.dtypes)
    assert len({output.name for output in spec.outputs}) == len(spec.outputs)
    assert 2 <= len(spec.bench_cases_at("default")) <= 8
    assert spec.bench_cases_at("quick")


def test_specs_import_without_torch(tmp_path):
    import subprocess
    import sys

    code = (
        "import sys; sys.modules['torch'] = None; sys.modules['triton'] = None\n"
        "from harness.registry import Registry\n"
        "r = Registry(); print([r.spec(s).stem for s in r.stems])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=REPOSITORY
    )
    assert done.returncode == 0, done.stderr


def test_short_extents():
    assert [short_extent(n) for n in (4096, 1 << 20, (1 << 28) - 1, 70000)] == [
        "4096",
        "2^20",
        "2^28-1",
        "70000",
    ]


def test_a_folder_without_specs_is_refused_in_one_line(tmp_path):
    with pytest.raises(RegistryError, match="found no spec"):
        Registry((tmp_path,))


def test_an_extra_root_adds_its_ops(tmp_path):
    folder = tmp_path / "harness" / "specs"
    folder.mkdir(parents=True)
    (folder / "my_op.py").write_text("SPEC = 3\n")
    registry = Registry((tmp_path,))
    assert "my_op" in registry.stems
    with pytest.raises(RegistryError, match="wanted SPEC"):
        registry.spec("my_op")
    with pytest.raises(RegistryError, match="unknown op 'nope'"):
        registry.spec("nope")
