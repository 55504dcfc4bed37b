"""relu_rows: out = relu(x) by rows, an op for what the real ones' cases leave out.

nonfinite: rows with NaN and both infinities. far: rows 2^31 elements apart, the third behind 2^32
of them, where a 32-bit offset of either sign has come back to the first.
"""

from harness.spec import ITEMSIZE, Case, OpSpec, Tolerance, random_tensor, torch_dtype

_APART = 1 << 31

TEST_CASES = (
    Case({"M": 5, "N": 257}),
    Case({"M": 3, "N": 1000}),
    Case({"M": 5, "N": 257}, layout="nonfinite"),
    Case({"M": 3, "N": 1000}, layout="far"),
)


def make_inputs(case, dtype, device, seed):
    import torch

    rows, cols = case.dims["M"], case.dims["N"]
    x = random_tensor((rows, cols), dtype, device, seed)
    if case.layout == "nonfinite":
        x[1, 5], x[2, 7], x[3, 9] = float("nan"), float("inf"), float("-inf")
        x[4] = float("nan")
    if case.layout == "far":
        n_elements = (rows - 1) * _APART + cols
        storage = torch.empty(n_elements, dtype=torch_dtype(dtype), device=device)
        x = storage.as_strided((rows, cols), (_APART, 1)).copy_(x)
    return {"x": x}


SPEC = OpSpec(
    stem="relu_rows",
    family="elementwise",
    formula="out = max(x, 0), NaN kept",
    arguments=("x",),
    dtypes=("f32", "bf16"),
    bench_cases=(),
    test_cases=TEST_CASES,
    make_inputs=make_inputs,
    output_shape=lambda case: (case.dims["M"], case.dims["N"]),
    reference=lambda t: t["x"].double().relu(),
    accumulation=lambda t, reference: reference.abs(),
    bytes_read=lambda case, dtype: case.dims["M"] * case.dims["N"] * ITEMSIZE[dtype],
    bytes_written=lambda case, dtype: case.dims["M"] * case.dims["N"] * ITEMSIZE[dtype],
    flops=lambda case: case.dims["M"] * case.dims["N"],
    tolerances={
        "f32": Tolerance(0.0, 0.0, "a value is kept or replaced by zero"),
        "bf16": Tolerance(0.0, 0.0, "a value is kept or replaced by zero"),
    },
    eager=lambda x: x.relu(),
    absent={"cuda": "its CUDA sides are bad on purpose", "library": "torch.relu is the library"},
)
