"""`python -m harness explain` from outside: damaged files, options that would be ignored, words."""

from __future__ import annotations

import argparse
import copy
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fixtures.triton_row import triton_row

from harness import cli
from harness.explain import collect, command, options, view
from harness.explain.collect import Explained, matching, variant_json
from harness.explain.fact_file import row_key
from harness.explain.facts import Instructions, KernelFacts, Launch, to_json
from harness.explain.variants import Variant
from harness.registry import REPOSITORY

REFERENCE = REPOSITORY / "results" / "nvidia-h200" / "reference"
ROW = triton_row("vector_add_kernel")
LAUNCH = Launch("vector_add_kernel", "0123", (4, 1, 1), (128, 1, 1), 0, registers=32)
NCU = """==PROF== Connected to process 4242
"ID","Process ID","Kernel Name","Metric Name","Metric Unit","Metric Value"
"0","4242","vector_add_kernel","dram__bytes_read.sum","Mbyte","2,147.5"
"0","4242","vector_add_kernel","dram__bytes_write.sum","byte","1,073,741,824"
==PROF== Disconnected from process 4242
"""


def kernel(name: str = "vector_add_kernel", arch: str = "90a", **further: Any) -> KernelFacts:
    counts = Instructions(loads={16: 2}, stores={16: 1}, mix={"LDG": 2, "STG": 1})
    known = {"op": "vector_add", "side": "triton", "registers": 32, "instructions": counts}
    return KernelFacts(name=name, symbol=name, arch=arch, hash="0123", **(known | further))


def variants_file(gpu: str = "90", **further: Any) -> dict[str, Any]:
    """As `explain --json` writes it."""
    variant = Variant(kernel(**further), LAUNCH, ("4096 f32",), "BLOCK_SIZE=1024")
    tools = {"cuda": {"nvcc": "13.0"}, "triton": {"triton": "3.8.0"}}
    found = Explained(gpu, tools=tools, variants=[variant])
    return json.loads(json.dumps(found.as_json()))


def rows_file(entry: dict[str, Any] | None = None, **row: str) -> dict[str, Any]:
    """As a run has it."""
    launch = to_json(LAUNCH) | {"occupancy": 0.5, "limiter": "registers", "waves": 0.004}
    whole = {"launches": [launch], "kernel_hash": "abc", "config": ""} | (entry or {})
    kernels = {"0123": to_json(kernel())}
    return {"schema": "1.0", "kernels": kernels, "rows": {row_key(ROW | row): whole}}


def write(path: Path, data: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(data if isinstance(data, str) else json.dumps(data))
    return path


def write_run(folder: Path, facts: Any = None, **row: str) -> Path:
    cells = ROW | row
    write(folder / "bench.csv", f"{','.join(cells)}\n{','.join(cells.values())}\n")
    write(folder / "facts.json", rows_file(**row) if facts is None else facts)
    return folder


class Says:
    """Runs the command line in this process."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *arguments: object) -> tuple[int, str, str]:
        """(exit code, standard output, standard error); every error is one foreseen line."""
        try:
            code = cli.main(["explain", *map(str, arguments)])
        except SystemExit as end:
            code = int(end.code or 0)
        out, err = self._capsys.readouterr()
        assert not err.startswith("error: unexpected"), err
        assert (code == 2) == bool(err), (code, err)
        if err:
            assert err.startswith("error: ") and err.count("\n") == 1, err
        else:
            assert out.strip()
        return code, out, err


@pytest.fixture
def says(capsys: pytest.CaptureFixture[str]) -> Says:
    return Says(capsys)


def damaged(data: Any) -> Iterator[Any]:
    """The document with each of its values replaced by one of every other kind, or left out."""

    def places(node: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
        yield path
        pairs = node.items() if isinstance(node, dict) else ()
        for key, value in pairs or (enumerate(node) if isinstance(node, list) else ()):
            yield from places(value, (*path, key))

    for path in places(data):
        for other in (None, 5, "x", [], {}, {"x": 1}, [1], True, -0.5):
            yield replaced(data, path, other)
        if path and isinstance(path[-1], str):
            yield replaced(data, path, ...)


def replaced(data: Any, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    whole = copy.deepcopy(data)
    node = whole
    for key in path[:-1]:
        node = node[key]
    if value is ...:
        del node[path[-1]]
    else:
        node[path[-1]] = value
    return whole


@pytest.mark.parametrize("whole", [variants_file(), rows_file()], ids=["variants", "rows"])
def test_no_damaged_value_is_a_traceback_or_a_blank_line_of_diff(
    tmp_path: Path, says: Says, whole: dict[str, Any]
) -> None:
    good = write(tmp_path / "good.json", whole)
    for data in damaged(whole):
        bad = write(tmp_path / "bad.json", data)
        code, _, error = says("--diff", bad, good)
        assert code != 2 or "bad.json" in error or "want two" in error


def test_no_damaged_value_is_a_traceback_or_a_blank_line_of_run(tmp_path: Path, says: Says) -> None:
    for data in damaged(rows_file()):
        run = write_run(tmp_path / "run", data)
        code, _, error = says("--run", run)
        assert code != 2 or "facts.json" in error


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        (("kernels",), {}, "variants[0]: its hash '0123' is not among the file's kernels"),
        (("variants",), None, "variants is null, want a list"),
        (("variants",), [], "holds no variant"),
        (("variants", 0), 5, "variants[0]: it is 5, want an object"),
        (("variants", 0, "launch"), None, "variants[0]: launch is null, want an object"),
        (("variants", 0, "launch", "grid"), [1, 2], "grid is [1, 2], want a list of 3"),
        (("variants", 0, "cases"), 5, "variants[0]: cases is 5, want a list"),
        (("kernels", "0123", "registers"), "32", "registers is '32', want a whole number"),
        (("rows",), 3, "rows is 3, want an object"),
        (("schema",), "2.0", "schema 2.0, this harness knows 1.0"),
        ((), [], "it is [], want an object"),
    ],
)
def test_what_is_wrong_with_a_file_is_named(
    tmp_path: Path, says: Says, path: tuple[Any, ...], value: Any, words: str
) -> None:
    bad = write(tmp_path / "bad.json", replaced(variants_file(), path, value))
    code, _, error = says("--diff", bad, write(tmp_path / "good.json", variants_file()))
    assert code == 2 and words in error and str(bad) in error


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"x": 1}, "row 'x': it is 1, want an object"),
        ({"x": {}}, "row 'x': launches is missing, want a list"),
        ({"x": {"launches": [{"hash": "0123"}]}}, "'symbol'"),
        ({}, "holds no row"),
    ],
)
def test_what_is_wrong_with_a_row_is_named(
    tmp_path: Path, says: Says, entry: Any, words: str
) -> None:
    bad = write(tmp_path / "bad.json", rows_file() | {"rows": entry})
    code, _, error = says("--diff", bad, write(tmp_path / "good.json", rows_file()))
    assert code == 2 and words in error and str(bad) in error


@pytest.mark.parametrize("content", [b"", b"\xff\xfe\x00junk", b"[" * 100_000, b"{", b"\x00" * 50])
def test_bytes_that_are_no_facts_are_refused_everywhere(
    tmp_path: Path, says: Says, content: bytes
) -> None:
    run = write_run(tmp_path / "run")
    (run / "facts.json").write_bytes(content)
    for arguments in (["--run", run], ["--diff", run, run]):
        code, _, error = says(*arguments)
        assert code == 2 and str(run / "facts.json") in error
    (run / "bench.csv").write_bytes(content)
    (tmp_path / "ncu.csv").write_bytes(content)
    write(run / "facts.json", rows_file())
    code, _, error = says("--run", run)
    assert code == 2 and str(run / "bench.csv") in error
    code, _, error = says("--ncu", tmp_path / "ncu.csv")
    assert code == 2 and "ncu.csv: not available: it printed no table" in error


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (",".join(ROW) + "\n", "has a header and no row"),
        ("op,case\n1,2\n", "lacks the column distribution, dtype, math_mode and 5 more"),
        (f"{','.join(ROW)}\na,b\n", "line 2 has 2 cells, want 11"),
        (f"{','.join(ROW)}\n{','.join((ROW | {'status': 'error'}).values())}\n", "was timed"),
    ],
)
def test_a_bench_csv_without_rows_is_no_blank_line(
    tmp_path: Path, says: Says, text: str, words: str
) -> None:
    run = write_run(tmp_path / "run")
    write(run / "bench.csv", text)
    code, _, error = says("--run", run)
    assert code == 2 and words in error and str(run) in error


def test_every_cut_of_a_recorded_table_is_told_or_still_whole(tmp_path: Path, says: Says) -> None:
    lines = NCU.splitlines(keepends=True)
    last = len("".join(lines[:4]))
    for end in range(len("".join(lines[:3])) + 1, last):
        code, _, error = says("--ncu", write(tmp_path / "n.csv", NCU[:end]))
        if code == 2:
            assert "n.csv: line 4" in error
        else:  # only the line's end is gone
            assert NCU[:end] + "\n" == "".join(lines[:4])
    assert says("--ncu", write(tmp_path / "n.csv", NCU))[1] == (
        "vector_add_kernel: dram__bytes_read.sum 2.1475e+09, dram__bytes_write.sum 1.07374e+09\n"
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (NCU.replace('"Kernel Name",', ""), "lacks the column Kernel Name"),
        ('"ID","Kernel Name","Metric Name","Metric Unit","Metric Value"\n', "header and no row"),
        ("==ERROR== Cannot be used on a MIG instance\n", "not available: Cannot be used on a MIG"),
    ],
)
def test_an_ncu_file_without_counters_is_told(
    tmp_path: Path, says: Says, text: str, words: str
) -> None:
    code, _, error = says("--ncu", write(tmp_path / "ncu.csv", text))
    assert code == 2 and "ncu.csv: " in error and words in error


# ---- options -------------------------------------------------------------------------------------

OTHERS: dict[str, list[str]] = {
    "OP": ["softmax"],
    "--arch": ["--arch", "80"],
    "--side": ["--side", "cuda"],
    "--variant": ["--variant", "x"],
    "--all": ["--all"],
    "--json": ["--json"],
    "--by-hand": ["--by-hand"],
}


def test_every_option_is_among_those_that_are_tried_here() -> None:
    parser = argparse.ArgumentParser()
    options.add_explain(parser)
    names = {action.option_strings[-1] for action in parser._actions if action.option_strings}
    assert names - {"--help"} == (OTHERS.keys() - {"OP"}) | {"--op", "--run", "--diff", "--ncu"}


@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize(
    ("way", "taken"),
    [
        (["--run", "{run}"], {"OP", "--side", "--by-hand"}),
        (["--diff", "{run}", "{run}"], {"--json"}),
        (["--ncu", "{ncu}"], set()),
        (["--by-hand"], {"OP", "--side", "--by-hand"}),
    ],
    ids=["run", "diff", "ncu", "by-hand"],
)
def test_an_option_is_looked_at_or_refused(
    tmp_path: Path, says: Says, way: list[str], taken: set[str], other: str
) -> None:
    ncu = write(tmp_path / "ncu.csv", NCU)
    places = {"run": str(REFERENCE), "ncu": str(ncu)}
    arguments = [*(word.format(**places) for word in way), *OTHERS[other]]
    if other in taken:
        assert says(*arguments)[0] == 0
    else:
        code, _, error = says(*arguments)
        way_or_other = "--by-hand" if "--by-hand" in arguments else way[0]
        assert code == 2 and error.startswith(f"error: {way_or_other} takes ")


@pytest.mark.parametrize("text", [*options.ARCHS, *(f"sm_{name}" for name in options.ARCHS)])
def test_documented_archs_are_accepted(text: str) -> None:
    assert options.arch(text) == text.removeprefix("sm_").rstrip("a")


@pytest.mark.parametrize(
    "text", ["90.0", "9.0", "900", "80a", "100f", "100a", "９０", "٩٠", "77", "", "sm_", "sm_sm_90"]
)
def test_other_archs_are_refused_by_name_with_the_list(says: Says, text: str) -> None:
    code, _, error = says("vector_add", "--arch", text)
    assert code == 2
    assert f"got {text!r}, wanted one of 80, 86, 89, 90, 90a, 100, 103, 120" in error


# ---- diff ----------------------------------------------------------------------------------------


def test_two_runs_are_compared_by_their_folders(tmp_path: Path, says: Says) -> None:
    old = write_run(tmp_path / "old")
    changed = rows_file()
    changed["rows"][row_key(ROW)]["launches"][0]["block"] = [256, 1, 1]
    new = write_run(tmp_path / "new", changed)
    code, out, _ = says("--diff", old, new)
    assert code == 1 and "    block: [128, 1, 1] -> [256, 1, 1]\n" in out
    assert says("--diff", old, old / "facts.json")[0] == 0
    (new / "facts.json").unlink()
    code, _, error = says("--diff", old, new)
    assert code == 2 and f"{new}: holds no facts.json" in error
    code, _, error = says("--diff", old, "/nonexistent")
    assert code == 2 and "/nonexistent: does not exist" in error


def test_facts_of_other_kinds_or_archs_are_not_compared(tmp_path: Path, says: Says) -> None:
    run = write_run(tmp_path / "run")
    here = write(tmp_path / "90.json", variants_file())
    code, _, error = says("--diff", run, here)
    assert code == 2 and "has the rows of a run" in error and "has variants" in error
    other = write(tmp_path / "80.json", variants_file("80", arch="80"))
    code, _, error = says("--diff", here, other)
    assert code == 2 and "for sm_90" in error and "for sm_80" in error
    facts = rows_file()
    facts["kernels"]["0123"]["arch"] = "80"
    code, _, error = says("--diff", run, write_run(tmp_path / "a100", facts))
    assert code == 2 and "for sm_90" in error and "for sm_80" in error


def test_other_tools_are_told_first(tmp_path: Path, says: Says) -> None:
    old, new = variants_file(), variants_file()
    new["tools"]["cuda"]["nvcc"] = "12.8"
    new["kernels"]["0123"] |= {"registers": 40, "arch": "90"}
    files = write(tmp_path / "old.json", old), write(tmp_path / "new.json", new)
    code, out, _ = says("--diff", *files)
    assert code == 1
    assert out.splitlines()[:2] == [
        'cuda nvcc: "13.0" -> "12.8"',
        'triton target: "sm_90a" -> "sm_90"',
    ]
    assert json.loads(says("--diff", *files, "--json")[1])["tools"]["cuda nvcc"] == ["13.0", "12.8"]
    new["kernels"] = old["kernels"]
    write(files[1], new)
    code, out, _ = says("--diff", *files)
    assert code == 0 and out.startswith('cuda nvcc: "13.0" -> "12.8"\n0 changed')


def test_launches_of_one_name_are_all_compared(tmp_path: Path, says: Says) -> None:
    old = variants_file()
    old["variants"] = [old["variants"][0], copy.deepcopy(old["variants"][0])]
    new = copy.deepcopy(old)
    new["variants"][0]["launch"]["block"] = [256, 1, 1]
    files = write(tmp_path / "old.json", old), write(tmp_path / "new.json", new)
    code, out, _ = says("--diff", *files)
    assert code == 1 and "1 changed" in out and "1 the same" in out


# ---- run -----------------------------------------------------------------------------------------


def test_a_mismatch_is_a_finding(tmp_path: Path, says: Says) -> None:
    run = write_run(tmp_path / "run", rows_file({"kernel_hash": "other"}))
    code, out, _ = says("--run", run)
    assert code == 1 and "MISMATCH: kernel_hash" in out
    assert says("--run", write_run(tmp_path / "right"))[0] == 0


def test_rungs_and_problems_are_shown(tmp_path: Path, says: Says) -> None:
    facts = rows_file(backend="cuda", variant="naive") | {"problems": ["not so", "nor so"]}
    run = write_run(tmp_path / "run", facts, backend="cuda", variant="naive")
    code, out, _ = says("--run", run)
    assert code == 0
    first, *problems = out.splitlines()
    assert first.startswith("vector_add 4096 f32 cuda:naive: vector_add_kernel 0123: 32 registers")
    assert "4x1x1 blocks of 128" in first and "0.004 waves" in first
    assert problems == ["problem: not so", "problem: nor so"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--run", "/nonexistent"], "--run /nonexistent: does not exist"),
        (["--run", "{file}"], "{file}: is no run"),
        (["--run", "{empty}"], "{empty}: holds no bench.csv"),
        (["--run", "{run}", "vector_ad"], "op 'vector_ad' is not in {run}; it has vector_add; did"),
        (["--run", "{run}", "--side", "cuda"], "{run}: no cuda row was timed"),
        (["--diff", "{empty}", "{run}"], "{empty}: holds no facts.json"),
        (["--ncu", "/nonexistent"], "/nonexistent: No such file"),
        (["--by-hand", "sofmax"], "did you mean 'softmax'?"),
        (["sofmax"], "unknown op 'sofmax'"),
        (["sofmax"], "did you mean 'softmax'?"),
    ],
)
def test_what_was_typed_is_what_is_named(
    tmp_path: Path, says: Says, arguments: list[str], words: str
) -> None:
    (tmp_path / "empty").mkdir()
    places = {
        "run": str(write_run(tmp_path / "run")),
        "file": str(write(tmp_path / "other.txt", "x")),
        "empty": str(tmp_path / "empty"),
    }
    code, _, error = says(*(word.format(**places) for word in arguments))
    assert code == 2 and words.format(**places) in error


# ---- variants and the table ----------------------------------------------------------------------


def some_variants() -> list[Variant]:
    looped, plain = kernel("softmax_looped_kernel", op="softmax"), kernel("softmax_kernel")
    return [
        Variant(looped, LAUNCH, ("8x8 bf16",), "BLOCK_N=64"),
        Variant(KernelFacts(**(vars(plain) | {"op": "softmax"})), LAUNCH, ("8x8 f32",)),
    ]


@pytest.mark.parametrize(
    ("pattern", "n_fitting"),
    [("[looped]", 1), ("looped", 1), ("8x8*f32", 1), ("8x8", 2), ("[ol]", 0), ("]", 1), ("", 2)],
)
def test_a_variant_is_chosen_by_what_the_table_shows(pattern: str, n_fitting: int) -> None:
    assert len(matching(some_variants(), pattern)) == n_fitting


def test_a_variant_that_is_not_there_names_one_that_is(
    says: Says, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = Explained("90", variants=some_variants())
    monkeypatch.setattr(command, "collect", lambda *_: found)
    code, _, error = says("softmax", "--variant", "softmax_loped_kernel")
    assert code == 2
    assert "fits none of 2 variants, such as '[looped] 8x8 bf16: BLOCK_N=64'" in error
    assert "did you mean 'softmax_looped_kernel'?" in error
    monkeypatch.setattr(command, "collect", lambda *_: Explained("90", notes=["cuda: not built"]))
    code, _, error = says("softmax")
    assert code == 2 and "no kernel to show: cuda: not built" in error


def test_the_table_says_units_and_what_it_does_not_know() -> None:
    built = [Variant(kernel(f"vector_add_kernel<float, {n}>", side="cuda")) for n in (1, 2)]
    launched = Variant(kernel(static_shared_bytes=0), LAUNCH, ("4096 f32",))
    lines = view.lines(Explained("90", variants=[*built, launched]), each=False)
    head, first, unknown = lines[1], lines[2], lines[4]
    assert head.split()[:2] == ["kernel", "regs"] and "loads B" in head
    assert "threads" not in head and "16" in first
    assert unknown.startswith("  unknown: threads, occupancy, in flight/SM, waves: the launch ")
    triton = next(line for line in lines if line.startswith("  4096 f32"))
    assert triton.startswith("  4096 f32  ")  # no colon before an empty configuration
    assert triton.split()[-1] == "0.0019"  # of a wave, never 0
    assert lines[-1].startswith("legend: ") and "132 SMs of H100/H200" in lines[-1]


def test_a_kernel_that_no_tool_has_read_is_unknown_and_not_empty() -> None:
    known = Variant(kernel(), LAUNCH, ("4096 f32",))
    unread = Variant(kernel(registers=None, instructions=None), LAUNCH, ("8 f32",))
    lines = view.lines(Explained("90", variants=[known, unread]), each=False)
    row = next(line for line in lines if line.startswith("  8 f32"))
    assert set(row.split()[2:]) - {"128"} == {"?"}
    only = view.lines(Explained("90", variants=[unread]), each=False)
    assert any("unknown: regs, spill B" in line and "`make doctor`" in line for line in only)


def test_facts_for_programs_hold_nothing_of_this_machine_or_moment() -> None:
    launch = Launch("k", "0123", (1, 1, 1), (128, 1, 1), 0, cubin="/home/x/.triton/k.cubin")
    entry = variant_json(Variant(kernel(), launch, ("4096 f32",)), "90")
    assert "/home/x" not in json.dumps(entry)
    assert not entry.keys() & {"cache_hit", "compile_ms"}


def test_two_calls_with_other_caches_give_the_same_bytes(tmp_path: Path) -> None:
    pytest.importorskip("triton")
    called = [sys.executable, "-m", "harness", "explain", "vector_add", "--side", "triton"]
    texts = []
    for name in ("a", "b", "b"):
        kept = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
        own = {"TRITON_CACHE_DIR": str(tmp_path / name), "CVT_EXPLAIN_CACHE": str(tmp_path / name)}
        done = subprocess.run(
            [*called, "--json", "--arch", "80"],
            cwd=REPOSITORY,
            env=kept | own | {"CUDA_VISIBLE_DEVICES": ""},
            capture_output=True,
            timeout=500,
        )
        assert done.returncode == 0, done.stderr[-2000:]
        texts.append(done.stdout)
    assert texts[0] == texts[1] == texts[2] and json.loads(texts[0])["variants"]


def test_what_keeps_the_spills_of_the_cuda_side_unknown_is_a_note(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def no_compiler(*_: object) -> tuple[bytes, str]:
        raise collect.ExplainError("nvcc was killed by SIGKILL")

    monkeypatch.setattr(collect.nvcc, "compile_source", no_compiler)
    notes: list[str] = []
    stacked = [kernel(stack_bytes=8)]
    assert collect._with_spills(stacked, "90a", notes) == stacked
    assert notes == ["cuda spills of kernels with a stack: nvcc was killed by SIGKILL"]
