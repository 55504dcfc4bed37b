"""Facts of the ops against hand-computed values; the contract of three files a stem."""

from __future__ import annotations

import math
import re

import binding_text
import pytest

from harness.registry import REPOSITORY, Registry, RegistryError
from harness.spec import BACKENDS, PEER_PACKAGES, Case, empty_outputs, short_extent

REGISTRY = Registry()


@pytest.mark.parametrize(
    ("stem", "dims", "dtype", "read", "written", "flops"),
    [
        ("vector_add", {"N": 1000}, "f32", 8000, 4000, 1000),
        ("vector_add", {"N": 7}, "bf16", 28, 14, 7),
        ("axpby", {"N": 1000}, "bf16", 4000, 2000, 3000),
        ("swiglu", {"M": 3, "I": 5}, "bf16", 60, 30, 90),
        ("swiglu_backward", {"M": 3, "I": 5}, "f32", 180, 120, 180),
        ("softmax", {"M": 3, "N": 5}, "f32", 60, 60, 75),
        ("softmax", {"M": 10, "N": 100}, "f16", 2000, 2000, 5000),
        ("reduce_sum", {"N": 1000}, "f32", 4000, 4, 1000),
        ("squared_norm", {"N": 7}, "bf16", 14, 4, 14),
        ("column_sum", {"M": 10, "N": 3}, "bf16", 60, 12, 30),
        # x (and r) 3*5 and w 5 elements read, out (and h) 3*5 written
        ("rms_norm", {"M": 3, "N": 5}, "f32", 80, 60, 60),
        ("add_rms_norm", {"M": 3, "N": 5}, "bf16", 70, 60, 75),
        # x 2*4 + w 4*3 + b 3 = 23 elements read, 2*3 written, 2*2*3*4 flops
        ("matmul_bias_relu", {"M": 2, "N": 3, "K": 4}, "bf16", 46, 12, 48),
        ("matmul_bias_relu", {"M": 1, "N": 1, "K": 0}, "f16", 2, 2, 0),
        # the same without b
        ("matmul", {"M": 2, "N": 3, "K": 4}, "bf16", 40, 12, 48),
        ("matmul_bias_gelu", {"M": 2, "N": 3, "K": 4}, "f16", 46, 12, 48),
        # 3*5 logits, 3 targets of 8 bytes; 3 losses of 4 bytes
        ("cross_entropy", {"M": 3, "V": 5}, "f32", 84, 12, 60),
        ("cross_entropy", {"M": 10, "V": 100}, "bf16", 2080, 40, 4000),
        ("cross_entropy_dlogits", {"M": 10, "V": 100}, "bf16", 2080, 2040, 5000),
        ("dropout", {"N": 1000}, "bf16", 2000, 2000, 1000),
        ("adamw", {"N": 1000}, "f32", 16000, 12000, 16000),
        # 3*256 elements, a float for each of 3*2 groups
        ("quant_fp8_group", {"M": 3, "N": 256}, "bf16", 1536, 792, 1536),
        ("quant_fp8_token", {"M": 3, "N": 256}, "f16", 1536, 780, 1536),
        ("transpose", {"M": 3, "N": 5}, "f32", 60, 60, 0),
        ("transpose", {"M": 3, "N": 5}, "i8", 15, 15, 0),
        # 3*5 elements and 2*5 parameters read
        ("layer_norm", {"M": 3, "N": 5}, "bf16", 50, 30, 120),
        # 2*3*5 + 5 elements and 2*3 floats read, 3*5 + 2*5 elements written
        ("layer_norm_backward", {"M": 3, "N": 5}, "bf16", 94, 50, 195),
        # x 2*3*4 + cos and sin 2*2 each = 32 elements read
        ("rope", {"T": 2, "H": 3, "D": 4}, "bf16", 64, 48, 72),
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
    assert REGISTRY.spec("axpby").reference(t).tolist() == [1.75, 5.0]
    t = {"gate": torch.tensor([[0.0, math.log(3.0)]]), "up": torch.tensor([[5.0, 2.0]])}
    swiglu = REGISTRY.spec("swiglu").reference(t)  # sigmoids of 1/2 and 3/4
    assert swiglu.tolist()[0] == pytest.approx([0.0, 1.5 * math.log(3.0)])
    backward = REGISTRY.spec("swiglu_backward")
    t["dout"] = torch.tensor([[2.0, -1.0]])
    slope = 0.75 * (1 + math.log(3.0) / 4)
    assert backward.reference(t).tolist()[0] == pytest.approx([5.0, -2.0 * slope])
    assert backward.outputs[1].reference(t).tolist()[0] == pytest.approx([0, -0.75 * math.log(3)])
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
    assert REGISTRY.spec("matmul").reference(t).tolist() == [[11.0, -1.0]]
    gelu = REGISTRY.spec("matmul_bias_gelu").reference(t)[0]
    wanted = torch.nn.functional.gelu(torch.tensor([11.5, -0.5]).double(), approximate="tanh")
    torch.testing.assert_close(gelu, wanted, rtol=1e-12, atol=0)
    # mean 2, variance 1
    t = {"x": torch.tensor([[1.0, 3.0]]), "w": torch.tensor([2.0, 3.0]), "b": torch.ones(2)}
    norm = REGISTRY.spec("layer_norm").reference(t)
    assert norm.tolist()[0] == pytest.approx([-1.0, 4.0], abs=1e-4)
    # xhat is (-1, 1), w dy (2, 6): means 4 of it and 2 of its product with xhat
    t = {"dy": torch.tensor([[1.0, 2.0]]), "x": t["x"], "w": t["w"]} | {
        "mean": torch.tensor([2.0]),
        "rstd": torch.tensor([1.0]),
    }
    gradients = [
        output.reference(t).tolist() for output in REGISTRY.spec("layer_norm_backward").outputs
    ]
    assert gradients == [[[0.0, 0.0]], [-1.0, 2.0], [1.0, 2.0]]
    quant = REGISTRY.spec("quant_fp8_token")
    row = {"x": torch.tensor([[1.0, -2.0, 0.5]])}
    assert quant.reference(row).tolist() == [[224.0, -448.0, 112.0]]
    assert quant.outputs[1].reference(row).tolist() == [2 / 448]
    t = {"x": torch.log(torch.tensor([[1.0, 3.0]])), "target": torch.tensor([1])}
    loss = REGISTRY.spec("cross_entropy").reference(t)
    assert loss.tolist() == pytest.approx([0.2876820724517809])  # log(4 / 3)
    gradient = REGISTRY.spec("cross_entropy_dlogits")
    assert gradient.reference(t).tolist()[0] == pytest.approx([0.25, -0.25])
    assert gradient.outputs[1].reference(t).tolist() == loss.tolist()
    t = {"x": torch.tensor([1.0, -2.0, 4.0])}
    assert REGISTRY.spec("reduce_sum").reference(t).tolist() == [3.0]
    assert REGISTRY.spec("squared_norm").reference(t).tolist() == pytest.approx([21.0])
    t = {"x": torch.tensor([[1.0, -2.0], [3.0, 5.0]])}
    assert REGISTRY.spec("column_sum").reference(t).tolist() == [4.0, 3.0]


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
    block = re.search(rf'm\.def\("{stem}",.*?;', binding_text.TEXT, re.S)
    assert block, f"no file of csrc/bindings/ binds {stem}"
    bound = re.findall(r'arg\("(\w+)"\)', block[0])
    assert bound[: len(wanted)] == wanted
    assert stem in (REPOSITORY / "csrc" / "kernels.h").read_text()


@pytest.mark.parametrize("stem", REGISTRY.stems)
def test_every_rung_has_its_file_its_launcher_and_its_step(stem):
    spec = REGISTRY.spec(stem)
    declared = (REPOSITORY / "csrc" / "kernels.h").read_text()
    for backend, rungs in spec.ladders.items():
        for rung in rungs:
            assert REGISTRY.kernel_files(stem, backend, rung.name)[0].is_file()
            assert len(rung.step.split()) >= 3
            assert set(rung.dtypes) <= set(spec.dtypes)
            if backend == "cuda":
                assert f'm.def("{stem}_{rung.name}"' in binding_text.TEXT
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
