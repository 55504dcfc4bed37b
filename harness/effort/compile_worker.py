"""A process that compiles ops' Triton kernels and prints what each took: see compile_cost.py.

    python -m harness.effort.compile_worker 90 softmax vector_add

Prints one line of JSON: op -> [kernels, wall ms, how many were compiled and not in the cache]. The
only module of this package that imports torch and triton, and only when it runs.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m harness.effort.compile_worker")
    parser.add_argument("arch", type=int)
    parser.add_argument("ops", nargs="+")
    parser.add_argument("--kernels", action="append", type=Path, default=[])
    options = parser.parse_args()

    from ..backends import watch_compilations
    from ..explain.variants import empty_arguments
    from ..offline import compile_only
    from ..registry import Registry

    registry = Registry(tuple(options.kernels))

    def compile_op(op: str, arch: int) -> tuple[int, float, int]:
        spec = registry.spec(op)
        launcher = getattr(registry.triton_module(op), op)
        arguments = empty_arguments(spec, spec.bench_cases[0], spec.dtypes[0])
        start = time.perf_counter()
        with compile_only(arch) as kernels, watch_compilations() as seen:
            launcher(*arguments)
        return len(kernels), (time.perf_counter() - start) * 1e3, seen.count

    with_triton = [op for op in options.ops if "triton" in registry.files(op)]
    # Thrown away, for another arch: the first compile in a process also starts the compiler.
    if with_triton:
        compile_op(with_triton[0], 80 if options.arch != 80 else 90)
    print(json.dumps({op: compile_op(op, options.arch) for op in with_triton}))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
