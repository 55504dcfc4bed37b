"""Reading of texts and files, without a compiler: listings, logs, occupancy, files of facts."""

from __future__ import annotations

import contextlib
import importlib.machinery
import json
import os
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from fixtures.triton_row import triton_row

from harness import compilers
from harness.explain import (
    cubin,
    diff,
    driver,
    elf,
    extension,
    launched,
    ncu,
    nvcc,
    ptx,
    run_view,
    sass,
    store,
    tools,
    triton_api,
    triton_side,
    view,
)
from harness.explain.book import FactsBook
from harness.explain.collect import Explained, fit_of, matching
from harness.explain.fact_file import FACTS_NAME, read, row_key
from harness.explain.facts import (
    ExplainError,
    Instructions,
    KernelFacts,
    Launch,
    kernel_from_json,
    to_json,
)
from harness.explain.occupancy import Occupancy, occupancy, waves
from harness.explain.variants import Variant

GOLDEN = """
	code for sm_90a
		Function : first_kernel
	.headerflags	@"EF_CUDA_SM90"
        /*0000*/                   LDC R1, c[0x0][0x28] ;           /* 0x00000a00ff017b82 */
                                                                    /* 0x000fe20000000800 */
        /*0010*/                   S2UR UR7, SR_CTAID.X ;           /* 0x00 */
        /*0020*/              @!P0 LDG.E.128.CONSTANT R4, desc[UR4][R2.64] ;   /* 0x00 */
        /*0030*/                   LDG.E R8, desc[UR4][R2.64+0x10] ;           /* 0x00 */
        /*0040*/               @P1 LDG.E.U16 R9, desc[UR4][R2.64+0x20] ;       /* 0x00 */
        /*0050*/                   LDGSTS.E.BYPASS.128 [R20], desc[UR4][R10.64] ;  /* 0x00 */
        /*0060*/                   LDGDEPBAR ;                      /* 0x00 */
        /*0070*/                   DEPBAR.LE SB0, 0x0 ;             /* 0x00 */
        /*0080*/                   BAR.SYNC.DEFER_BLOCKING 0x0 ;    /* 0x00 */
        /*0090*/              @UP0 UIADD3 UR4, UR5, UR6, URZ ;      /* 0x00 */
        /*00a0*/                   FADD R4, R4, R8 ;                /* 0x00 */
        /*00b0*/                   SHFL.BFLY PT, R5, R4, 0x10, 0x1f ;  /* 0x00 */
        /*00c0*/                   HGMMA.64x128x16.F32 R24, gdesc[UR8], R24 ;  /* 0x00 */
        /*00d0*/                   UTMALDG.2D [UR8], [UR4] ;        /* 0x00 */
        /*00e0*/                   ATOMG.E.ADD PT, R2, desc[UR4][R2.64], R3 ;  /* 0x00 */
        /*00f0*/                   STG.E.64 desc[UR4][R2.64], R4 ;  /* 0x00 */
        /*0100*/                   FROBNICATE.X R1 ;                /* 0x00 */
        /*0110*/                   EXIT ;                           /* 0x00 */
        /*0120*/                   BRA 0x120;                       /* 0x00 */
        /*0130*/                   NOP;                             /* 0x00 */
		..........
		Function : first_kernel_too
        /*0000*/                   LDL R4, [R1+0x8] ;               /* 0x00 */
        /*0010*/                   STL [R1], R4 ;                   /* 0x00 */
        /*0020*/                   HMMA.16816.F32 R4, R8, R10, R4 ; /* 0x00 */
        /*0030*/                   EXIT ;                           /* 0x00 */
        /*0040*/                   BRA 0x40;                        /* 0x00 */
"""


def test_a_golden_listing_is_counted_exactly():
    parts = sass.functions(GOLDEN)
    assert list(parts) == ["first_kernel", "first_kernel_too"]
    found = sass.count(parts["first_kernel"])
    assert found.loads == {2: 1, 4: 1, 16: 1}
    assert found.stores == {8: 1}
    assert found.async_copy == ("tma", "cp.async")
    assert found.async_bytes == {16: 1}
    assert found.matrix == ("wgmma",)
    assert (found.barriers, found.shuffles, found.atomics) == (1, 1, 1)
    assert found.local_accesses == 0
    assert found.mix["FROBNICATE"] == 1  # unknown, not lost
    assert found.mix["LDGDEPBAR"] == found.mix["DEPBAR"] == found.mix["LDGSTS"] == 1
    assert "NOP" not in found.mix
    assert "BRA" not in found.mix  # the padding's
    assert sum(found.mix.values()) == 18
    assert sass.count(parts["first_kernel_too"]).local_accesses == 2
    assert sass.count(parts["first_kernel_too"]).matrix == ("mma",)


def test_bytes_in_flight_end_at_the_first_use():
    load, use = ("LDG.E.128", "R{}, desc[UR4][R2.64]", ""), ("FADD", "R9, R{}, R1", "")

    def code(*parts: tuple[tuple[str, str, str], int]) -> list[tuple[str, str, str]]:
        return [(op, text.format(n), predicate) for (op, text, predicate), n in parts]

    assert sass.in_flight(code((load, 4), (load, 12), (use, 4), (load, 16))) == 32
    assert sass.in_flight(code((load, 4), (use, 7), (load, 12), (use, 12))) == 16
    assert sass.in_flight(code((load, 4), (("BRA", "0x10", ""), 0), (load, 12))) == 16
    assert sass.in_flight(code((load, 4), (("BRA", "0x10", "P0"), 0), (load, 12))) == 32


def test_ptx_gives_the_same_classes():
    found = ptx.count(
        """
    @%p1 ld.global.v4.b32 { %r1, %r2, %r3, %r4 }, [ %rd1 + 0 ];
    ld.global.nc.L1::no_allocate.v2.f64 {%fd1, %fd2}, [%rd2];
    st.global.b16 [%rd3], %rs1;
    cp.async.cg.shared.global [ %r5 + 0 ], [ %rd4 + 0 ], 0x10, %r6;
    mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f1}, {%r1}, {%r2}, {%f1};
    bar.sync 0;
    shfl.sync.bfly.b32 %r7, %r8, 16, 31, -1;
"""
    )
    assert (found.loads, found.stores) == ({16: 2}, {2: 1})
    assert (found.async_copy, found.async_bytes) == (("cp.async",), {16: 1})
    assert (found.matrix, found.barriers, found.shuffles) == (("mma",), 1, 1)
    assert found.source == "ptx"
    assert found.local_accesses is None


@pytest.mark.parametrize(
    ("arch", "registers", "shared", "threads", "blocks", "limiter"),
    [
        ("80", 32, 0, 256, 8, "registers+threads"),
        ("90a", 64, 0, 256, 4, "registers"),
        ("90", 255, 0, 256, 1, "registers"),
        ("90", 128, 0, 1024, 0, "registers"),
        ("90", 16, 0, 32, 32, "blocks"),
        ("90", 198, 147456, 256, 1, "registers+shared"),
        ("80", 32, 163 * 1024, 128, 1, "shared"),
        ("80", 32, 81 * 1024, 128, 2, "shared"),
        ("90", 32, 113 * 1024, 128, 2, "shared"),
        ("120", 32, 0, 1024, 1, "threads"),
        ("90", 40, 0, 96, 16, "registers"),
    ],
)
def test_occupancy_of_known_kernels(arch, registers, shared, threads, blocks, limiter):
    found = occupancy(arch, registers, shared, threads)
    assert (found.blocks, found.limiter) == (blocks, limiter)
    assert found == Occupancy(blocks, found.warps, found.share, limiter)


def test_occupancy_refuses_what_it_does_not_know():
    with pytest.raises(ExplainError, match="arch 77: its limits are unknown"):
        occupancy("77", 32, 0, 128)
    with pytest.raises(ExplainError, match="got 0, wanted 1 or more"):
        occupancy("90", 32, 0, 0)
    assert waves(264, 2, 132) == 1
    assert waves(1, 0, 132) is None


PTXAS = """ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '_Z1av' for 'sm_90a'
ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized
ptxas info    : Function properties for _Z1av
    24 bytes stack frame, 20 bytes spill stores, 16 bytes spill loads
ptxas info    : Used 168 registers, used 1 barriers
ptxas info    : Function properties for _Z1bv
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 8 registers
"""


def test_a_ptxas_log_gives_spills_and_serialised_wgmma():
    found = nvcc.parse_log(PTXAS)
    assert found["_Z1av"] == nvcc.PtxasEntry(24, 20, 16, 168)
    assert found["_Z1bv"] == nvcc.PtxasEntry(0, 0, 0, 8)
    assert [line.split(":")[2].strip() for line in nvcc.serialised(PTXAS)] == [
        "wgmma.mma_async instructions are serialized"
    ]
    assert not nvcc.serialised("ptxas info : (C7520) something else")


def test_a_log_of_another_build_is_believed_only_where_it_fits():
    kernel = facts(name="a()", registers=168, stack_bytes=24)
    kernel = kernel_from_json(to_json(kernel) | {"name": tools.short_name("_Z1av")})
    (same,) = nvcc.with_spills([kernel], PTXAS, same_build=False)
    assert (same.spill_bytes, same.sources["spills"]) == (20, "ptxas log")
    other = kernel_from_json(to_json(kernel) | {"registers": 99})
    assert nvcc.with_spills([other], PTXAS, same_build=False) == [other]


def test_names_are_readable_and_belong_to_the_longest_op():
    symbol = (
        "_ZN14cuda_vs_triton46_GLOBAL__N__ba706f75_13_vector_add_cu_311bd31a17"
        "vector_add_kernelIfLi4ELb0EEEvPKT_S4_PS2_lll"
    )
    assert tools.short_name(symbol) == "vector_add_kernel<float, 4, false>"
    assert tools.short_name("softmax_kernel") == "softmax_kernel"
    stems = ("add", "vector_add", "softmax")
    assert tools.op_of("vector_add_kernel<float, 4, false>", stems) == "vector_add"
    assert tools.op_of("softmax_looped_kernel", stems) == "softmax"
    assert tools.op_of("log_softmax_kernel", stems) == ""
    assert tools.op_of("add_kernel", stems) == "add"


def test_a_kernel_that_ops_share_is_of_the_one_that_its_arguments_name():
    stems = ("matmul", "matmul_bias_relu", "softmax")
    shared = "matmul_mma_kernel<__nv_bfloat16, {}, MmaTile<128, 256, 64, 3, 2, 4>, false>"
    assert tools.op_of(shared.format("BiasRelu"), stems) == "matmul_bias_relu"
    assert tools.op_of(shared.format("NoEpilogue"), stems) == "matmul"
    assert tools.op_of(shared.format("BiasGelu"), stems) == "matmul"  # there is no such op here
    assert tools.kernel_owners("matmul_bias_relu", stems) == ["matmul", "matmul_bias_relu"]
    assert tools.kernel_owners("matmul", stems) == ["matmul"]


@pytest.mark.parametrize(
    ("arch", "cubins", "ptx_archs", "chosen", "words"),
    [
        ("90", ("80",), (), "", "nothing: built for sm_80"),
        ("90", ("80",), ("80",), "", "would compile the PTX of compute_80"),
        ("86", ("80", "90a"), (), "80", "an older GPU of the same generation"),
        ("90", ("90", "90a"), (), "90a", "the cubin for sm_90a"),
        ("100", ("90a",), ("90a",), "", "nothing"),
        ("103", ("100a",), (), "", "nothing"),
        ("80", ("86",), (), "", "nothing"),
    ],
)
def test_which_code_a_gpu_would_run(arch, cubins, ptx_archs, chosen, words):
    found, text = extension.code_for(arch, extension.Contents(cubins, ptx_archs))
    assert found == chosen
    assert words in text


def test_what_is_no_cubin_is_refused_in_one_line():
    for data in (b"", b"MZ", b"\x7fELF\x02" + b"\0" * 80):
        with pytest.raises(ExplainError) as refusal:
            elf.sections(data)
        assert "\n" not in str(refusal.value)


# ---- files of facts ------------------------------------------------------------------------------

ROW = triton_row("add")


def facts(name: str = "add", registers: int = 32, **further) -> KernelFacts:
    counted = Instructions(loads={16: 2}, stores={16: 1}, mix={"LDG": 2, "STG": 1})
    return KernelFacts(
        name,
        name,
        "triton",
        "vector_add",
        "90a",
        "0123",
        registers,
        instructions=counted,
        **further,
    )


def test_facts_survive_their_file():
    for kernel in (facts(), facts(spill_store_bytes=0, warnings=("spills",))):
        assert kernel_from_json(json.loads(json.dumps(to_json(kernel)))) == kernel
    assert "spill_store_bytes" not in to_json(facts())  # unknown is left out, 0 is not
    assert to_json(facts(spill_store_bytes=0))["spill_store_bytes"] == 0


def write_facts(path: Path, kernel: KernelFacts, **row) -> Path:
    launch = {"symbol": "add", "hash": kernel.hash, "grid": [4, 1, 1], "block": [128, 1, 1]}
    entry = {"launches": [launch | {"registers": kernel.registers}], "kernel_hash": "abc"}
    data = {"schema": "1.0", "kernels": {kernel.hash: to_json(kernel)}}
    path.write_text(json.dumps(data | {"rows": {row_key(ROW): entry | row}}))
    return path


def test_rows_and_facts_join_and_a_mismatch_is_shown(tmp_path):
    bench = tmp_path / "bench.csv"
    bench.write_text(",".join(ROW) + "\n" + ",".join(ROW.values()) + "\n")
    write_facts(tmp_path / FACTS_NAME, facts())
    ((line,), n_mismatches) = run_view.lines(tmp_path)
    assert n_mismatches == 0
    assert line.startswith(
        "vector_add 4096 f32 triton: add 0123: 32 registers, 4x1x1 blocks of 128"
    )
    write_facts(tmp_path / FACTS_NAME, facts(), kernel_hash="other")
    ((line,), n_mismatches) = run_view.lines(tmp_path)
    assert n_mismatches == 1
    assert "MISMATCH: kernel_hash is 'abc' in the row and 'other' in facts.json" in line
    with pytest.raises(ExplainError, match=r"op 'vector_ad' .* did you mean 'vector_add'"):
        run_view.lines(tmp_path, ["vector_ad"])


def test_a_row_without_facts_says_so(tmp_path):
    bench = tmp_path / "bench.csv"
    bench.write_text(",".join(ROW) + "\n" + ",".join(ROW.values()) + "\n")
    (tmp_path / FACTS_NAME).write_text('{"schema": "1.0", "kernels": {}}')
    assert run_view.lines(tmp_path) == (["vector_add 4096 f32 triton: no facts"], 0)


def test_files_that_hold_no_facts_are_refused(tmp_path):
    bad = tmp_path / "bad.json"
    for text in ("", "[]", "{}", '{"schema": "2.0", "kernels": {}}', '{"schema": 1, "kernels": 3}'):
        bad.write_text(text)
        with pytest.raises(ExplainError):
            read(bad)
    with pytest.raises(ExplainError, match="cannot be read"):
        read(tmp_path / "none.json")


def test_a_diff_names_what_changed(tmp_path):
    old = diff.entries(read(write_facts(tmp_path / "a.json", facts())))
    new = diff.entries(read(write_facts(tmp_path / "b.json", facts(registers=40))))
    found = diff.differences(old, new)
    (changed,) = found.changed.values()
    assert changed == {"registers": (32, 40)}
    assert "    registers: 32 -> 40" in diff.lines(found)
    assert diff.differences(old, old).same == 1
    assert diff.differences(old, {}).lost == list(old)


def test_the_book_fills_a_spill_and_a_failure_costs_no_row(tmp_path, monkeypatch):
    book = FactsBook(tmp_path, ("vector_add",), {"sm_count": 132})
    launch = to_json(Launch("add", "0123", (4, 1, 1), (128, 1, 1), 0, 32, 8, 0, "90", cubin="k"))
    monkeypatch.setattr(
        FactsBook,
        "_read_triton",
        lambda self, launch: self._kernels.update({"0123": facts(spill_store_bytes=8)}),
    )
    event = {"row": dict(ROW, spill_bytes=None), "launches": [launch]}
    broken = {"row": dict(ROW, case="1"), "launches": [{"nonsense": 1}]}
    told = {"row": dict(ROW, case="2"), "launch_problem": "cuda: not so"}
    book.take([event, broken, told])
    assert event == {"row": dict(ROW, spill_bytes=8)}
    assert broken == {"row": dict(ROW, case="1")}
    found = read(tmp_path / FACTS_NAME)
    assert list(found.kernels) == ["0123"]
    assert list(found.rows) == [row_key(ROW)]
    assert found.rows[row_key(ROW)]["launches"][0]["limiter"] == "registers+threads"
    assert len(found.problems) == 2
    again = FactsBook(tmp_path, ("vector_add",), {})
    assert list(again._rows) == [row_key(ROW)]  # a resumed run keeps what it knew


def test_a_folder_that_is_gone_is_not_made_again_for_facts(tmp_path):
    book = FactsBook(tmp_path / "gone", ("vector_add",), {})
    launch = to_json(Launch("other_kernel", block=(128, 1, 1)))
    book.take([{"row": dict(ROW, backend="torch"), "launches": [launch]}])
    assert not (tmp_path / "gone").exists()


def test_a_fit_without_dynamic_shared_memory_is_an_upper_bound():
    kernel = facts(static_shared_bytes=0, max_threads=256)
    fit = fit_of(kernel, None, "90")
    assert fit is not None
    assert fit.upper
    launched = fit_of(kernel, Launch("add", block=(128, 1, 1), dynamic_shared_bytes=0), "90")
    assert launched is not None
    assert not launched.upper
    assert fit_of(facts(), None, "90") is None


def test_the_table_groups_instances_and_shows_each_when_asked():
    names = [f"vector_add_kernel<float, {n}, false>" for n in (1, 2, 4, 8, 16)]
    variants = [
        Variant(KernelFacts(name, name, "cuda", "vector_add", "90a", name, 30 + i))
        for i, name in enumerate(names)
    ]
    found = Explained("90", variants=variants, notes=["triton: is not installed"])
    grouped = view.lines(found, each=False)
    assert grouped[0] == "vector_add cuda (sm_90a, 5 variants)"
    assert [line.split() for line in grouped[2:3]] == [
        ["vector_add_kernel<float,", "...>", "x5", "30-34"]
    ]
    assert grouped[-1] == "note: triton: is not installed"
    assert len(view.lines(found, each=True)) == len(grouped) + 4
    assert [v.kernel.name for v in matching(variants, "float, 4")] == [names[2]]


# ---- ncu -----------------------------------------------------------------------------------------

NCU = """some program's own line
==PROF== Connected to process 4242 (/usr/bin/python3)
"ID","Process ID","Kernel Name","Metric Name","Metric Unit","Metric Value"
"0","4242","vector_add_kernel","dram__bytes_read.sum","Mbyte","2,147.5"
"0","4242","vector_add_kernel","dram__bytes_write.sum","byte","1,073,741,824"
"0","4242","vector_add_kernel","gpu__time_duration.sum","nsecond","727,000"
"0","4242","vector_add_kernel","launch__registers_per_thread","register/thread","n/a"
"""


def test_a_recorded_ncu_table_gives_bytes_and_never_a_time():
    (profile,) = ncu.parse(NCU)
    assert profile.dram_bytes == 2147.5e6 + 1073741824
    assert set(profile.values) == {"dram__bytes_read.sum", "dram__bytes_write.sum"}
    assert not any(ncu.is_time(metric) for metric in ncu.METRICS)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission", "keeps counters"),
        ("==ERROR== Cannot be used on a MIG instance", "Cannot be used on a MIG instance"),
        ("", "it printed no table"),
    ],
)
def test_where_ncu_measures_nothing_the_reason_is_said(text, reason, tmp_path):
    with pytest.raises(ExplainError, match=f"not available: .*{reason}"):
        ncu.parse(text)
    file = tmp_path / "ncu.csv"
    file.write_text(text)
    with pytest.raises(ExplainError, match=rf"ncu\.csv: not available: .*{reason}"):
        ncu.lines(file)


def test_ncu_leaves_the_clocks_alone():
    command = ncu.command(["python", "-m", "x"], "softmax_kernel")
    assert command[command.index("--clock-control") + 1] == "none"
    assert command[-3:] == ["python", "-m", "x"]


# ---- the driver ----------------------------------------------------------------------------------


class FakeCuda:
    """An empty node and two kernels, the second launched through the library interface."""

    kinds = (5, 0, 0)

    def cuGraphGetNodes(self, graph, nodes, count) -> int:  # noqa: N802
        count._obj.value = len(self.kinds)
        for i in range(len(self.kinds)) if nodes else ():
            nodes[i] = 100 + i
        return 0

    def cuGraphNodeGetType(self, node, kind) -> int:  # noqa: N802
        kind._obj.value = self.kinds[node.value - 100]
        return 0

    def cuGraphKernelNodeGetParams_v2(self, node, params) -> int:  # noqa: N802
        into = params._obj
        into.func, into.kern = (7, None) if node.value == 101 else (None, 8)
        into.grid[:], into.block[:], into.shared_bytes = (4, 2, 1), (64, 2, 1), 2048
        return 0

    def cuKernelGetFunction(self, function, kernel) -> int:  # noqa: N802
        function._obj.value = kernel.value + 1
        return 0

    def cuFuncGetName(self, name, function) -> int:  # noqa: N802
        name._obj.value = {7: b"first_kernel", 9: b"second_kernel"}[function.value]
        return 0

    def cuFuncGetAttribute(self, value, which, function) -> int:  # noqa: N802
        value._obj.value = {1: 128, 3: 0, 4: 40, 6: 90}[which.value]
        return 0

    def cuOccupancyMaxActiveBlocksPerMultiprocessor(  # noqa: N802
        self, value, function, threads, shared
    ) -> int:
        value._obj.value = 2048 // threads.value
        return 0


def test_the_kernels_of_a_graph_are_named_in_order():
    first, second = driver.Driver(FakeCuda()).launches(1)
    assert (first.symbol, second.symbol) == ("first_kernel", "second_kernel")
    assert (first.grid, first.block, first.threads) == ((4, 2, 1), (64, 2, 1), 128)
    assert (first.registers, first.local_bytes, first.static_shared_bytes) == (40, 0, 128)
    assert (first.dynamic_shared_bytes, first.binary_arch, first.blocks_per_sm) == (2048, "90", 16)
    assert launched.columns([first, second]) == {
        "kernel_symbol": "first_kernel,second_kernel",
        "registers": 40,
        "spill_bytes": 0,
        "shared_bytes": 2176,
    }


def test_a_driver_without_a_call_or_with_an_error_is_one_line():
    class Refuses(FakeCuda):
        cuFuncGetName = None  # noqa: N815  # of an old driver

        def cuGraphGetNodes(self, *_) -> int:  # noqa: N802
            return 400

    with pytest.raises(ExplainError, match="cuGraphGetNodes failed with CUDA driver error 400"):
        list(driver.Driver(Refuses()).launches(1))
    missing = type("Old", (FakeCuda,), {"cuFuncGetName": None})
    with pytest.raises(ExplainError, match="the driver has no cuFuncGetName"):
        list(driver.Driver(missing()).launches(1))


def test_local_memory_alone_is_not_called_a_spill():
    assert launched.columns([Launch("k", local_bytes=64)])["spill_bytes"] is None
    assert launched.columns([]) == {}


def test_a_launch_finds_its_own_triton_kernel_among_others(monkeypatch):
    """One that was not captured, one of another name and one that a hook hid are passed over."""
    compiled = {
        name: triton_api.Compiled(name=name, arch="90a", cubin=b"", ptx="") for name in "abc"
    }
    monkeypatch.setattr(launched.triton_api, "facts_of", compiled.__getitem__)
    section = SimpleNamespace(data=b"code")
    monkeypatch.setattr(launched.elf, "sections", lambda _: {f".text.{n}": section for n in "abc"})
    seen = [Launch("c", binary_arch="90"), Launch("other", binary_arch="90")]
    found = launched.joined([*seen, Launch("b", binary_arch="90")], ["a", None, "b", "c"])
    assert [launch.options.get("arch") for launch in found] == ["90a", None, "90a"]
    assert found[0].hash != found[2].hash
    assert found[1].hash == ""


def test_what_a_killed_tool_left_out_is_asked_again(tmp_path, monkeypatch):
    """A Ctrl-C once left a kernel without registers in the cache, for good."""
    monkeypatch.setenv("CVT_EXPLAIN_CACHE", str(tmp_path))
    monkeypatch.setattr(cubin.tools, "find", lambda name: f"/bin/{name}")
    answers = [
        {"registers": None, "instructions": None},
        {"registers": 32, "instructions": {"source": "ptx"}},
        {"registers": 32, "instructions": {"source": "sass"}},
    ]
    told = iter(answers)
    seen = [store.remember("k", ["p"], lambda: next(told), cubin.is_whole) for _ in range(4)]
    assert seen == [*answers, answers[-1]]


def test_a_damaged_extension_is_no_table(tmp_path):
    broken = tmp_path / "_cuda.so"
    broken.write_bytes(b"\x7fELF" + bytes(100))
    if not extension.tools.find("cuobjdump"):
        pytest.skip("no cuobjdump on this machine")
    with pytest.raises(ExplainError, match=r"_cuda\.so: cuobjdump finds no GPU code in it"):
        extension.contents(broken)


def test_the_extension_of_another_checkout_is_not_taken(tmp_path, monkeypatch):
    elsewhere = importlib.machinery.ModuleSpec("harness._cuda", None, origin=str(tmp_path / "a.so"))
    monkeypatch.setattr(extension.importlib.util, "find_spec", lambda name: elsewhere)
    with pytest.raises(ExplainError, match="another checkout's"):
        extension.binary()


def test_a_cache_that_is_a_file_is_one_line(tmp_path, monkeypatch):
    if compilers.find_nvcc(os.environ) is None:
        pytest.skip("no nvcc on this machine")
    monkeypatch.setenv("CVT_EXPLAIN_CACHE", str(tmp_path / "file"))
    (tmp_path / "file").write_text("")
    with pytest.raises(ExplainError, match="set CVT_EXPLAIN_CACHE to one"):
        nvcc.compile_source(nvcc.sources()[0], "80")


# ---- tools that do not come to an end ------------------------------------------------------------

SOURCE = """__global__ void k(int* x) { *x = 1; }"""


def fake_nvcc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str) -> Path:
    """A compiler in the place of nvcc, a cache of its own, and a source to compile."""
    tool = tmp_path / "nvcc"
    tool.write_text(f"#!/bin/sh\nfor last; do :; done\n{body}\n")
    tool.chmod(0o755)
    found = compilers.Nvcc(str(tool), str(tmp_path), "13.0", "a test's")
    monkeypatch.setattr(compilers, "find_nvcc", lambda *_: found)
    monkeypatch.setenv("CVT_EXPLAIN_CACHE", str(tmp_path / "cache"))
    source = tmp_path / "k.cu"
    source.write_text(SOURCE)
    return source


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ('printf half > "$last"; kill -9 $$', "nvcc was killed by SIGKILL"),
        ('printf half > "$last"; sleep 60', "nvcc took more than 0.5 s and was stopped"),
        (
            'printf half > "$last"; echo "k.cu(1): error" >&2; exit 1',
            r"cannot compile k\.cu .*error",
        ),
        ("printf '\\377\\376' >&2; exit 1", "cannot compile"),
        ("exit 0", "cannot hold compiled kernels"),
    ],
)
def test_a_compiler_that_ends_badly_leaves_nothing_behind(tmp_path, monkeypatch, body, words):
    source = fake_nvcc(tmp_path, monkeypatch, body)
    monkeypatch.setattr(nvcc, "_TIMEOUT_S", 0.5)
    with pytest.raises(ExplainError, match=words) as refusal:
        nvcc.compile_source(source, "80")
    assert "\n" not in str(refusal.value)
    assert list((tmp_path / "cache").iterdir()) == []


def whole_elf() -> bytes:
    """The smallest file that elf.sections takes: a header, the names, two section headers."""
    names = b"\0.shstrtab\0"
    header = bytearray(b"\x7fELF\x02\x01" + bytes(58))
    header[40:48] = (64 + len(names)).to_bytes(8, "little")
    header[58:64] = b"".join(n.to_bytes(2, "little") for n in (64, 2, 1))
    table = bytearray(64)
    table[0:8] = (1).to_bytes(4, "little") + (3).to_bytes(4, "little")
    table[24:32], table[32:40] = ((64).to_bytes(8, "little"), len(names).to_bytes(8, "little"))
    return bytes(header) + names + bytes(64) + bytes(table)


@pytest.mark.parametrize("left", ["binary", "log"])
def test_a_cut_entry_of_the_cache_is_compiled_again(tmp_path, monkeypatch, left):
    whole = tmp_path / "whole"
    whole.write_bytes(whole_elf())
    body = f'echo x >> {tmp_path}/calls; cp {whole} "$last"; echo said >&2'
    source = fake_nvcc(tmp_path, monkeypatch, body)
    wanted = (whole_elf(), "said\n")
    assert nvcc.compile_source(source, "80") == nvcc.compile_source(source, "80") == wanted
    assert len((tmp_path / "calls").read_text().splitlines()) == 1
    (binary,), (log,) = ((tmp_path / "cache").glob(f"*.{end}") for end in ("cubin", "log"))
    cut = binary if left == "binary" else log
    cut.write_bytes(cut.read_bytes()[:-30] if left == "binary" else b"")
    assert nvcc.compile_source(source, "80") == wanted
    assert len((tmp_path / "calls").read_text().splitlines()) == 2


@pytest.mark.parametrize("kept", ["", "null", "[]", "[1", '{"registers": null}', "\ud800"])
def test_a_damaged_answer_of_the_cache_is_asked_again(tmp_path, monkeypatch, kept):
    monkeypatch.setenv("CVT_EXPLAIN_CACHE", str(tmp_path))
    monkeypatch.setattr(cubin.tools, "find", lambda name: f"/bin/{name}")
    answer = {"registers": 32, "instructions": {"source": "sass"}}
    store.remember("k", ["p"], lambda: answer, cubin.is_whole)
    (file,) = tmp_path.iterdir()
    file.write_bytes(kept.encode(errors="surrogatepass"))
    assert store.remember("k", ["p"], lambda: answer, cubin.is_whole) == answer


def test_a_tool_that_was_stopped_is_told_from_one_that_fails():
    assert tools.call(["sh", "-c", "echo out; echo err >&2; exit 3"]).returncode == 3
    assert tools.run(["sh", "-c", "kill -9 $$"]) is None
    with pytest.raises(ExplainError, match="sh was killed by SIGTERM"):
        tools.call(["sh", "-c", "kill -15 $$"])
    with pytest.raises(ExplainError, match="/nonexistent cannot be run: No such file"):
        tools.call(["/nonexistent"])
    begun = time.monotonic()
    with pytest.raises(ExplainError, match=r"sh took more than 0\.2 s"):
        tools.call(
            ["sh", "-c", "sleep 20 & wait"], timeout_s=0.2
        )  # the child keeps its output open
    assert time.monotonic() - begun < 10


def test_spills_that_a_stopped_ptxas_did_not_tell_are_asked_again(monkeypatch):
    def stopped(*_, **__):
        raise ExplainError("ptxas was killed by SIGKILL")

    monkeypatch.setattr(triton_side.triton_api, "ptxas_log", stopped)
    compiled = triton_api.Compiled(name="k", arch="90a", cubin=b"", ptx="ptx")
    kernel = triton_side._with_spills(facts(stack_bytes=8), compiled)
    assert kernel.spill_bytes is None
    assert kernel.sources["spills"] == "not told: ptxas was killed by SIGKILL"
    monkeypatch.setattr(cubin.tools, "find", lambda name: f"/bin/{name}")
    assert not cubin.is_whole(to_json(kernel))
    assert cubin.is_whole(to_json(facts(stack_bytes=8)))


def test_no_damaged_binary_is_more_than_a_refusal():
    whole = whole_elf()
    assert list(elf.sections(whole)) == ["", ".shstrtab"]
    cuts = [whole[:end] for end in range(len(whole))]
    flips = [
        whole[:at] + bytes([byte]) + whole[at + 1 :]
        for at in range(len(whole))
        for byte in (0, 255)
    ]
    for data in cuts:
        with pytest.raises(ExplainError):
            elf.sections(data)
    for data in flips:
        with contextlib.suppress(ExplainError):  # and nothing else
            list(elf.fat_binaries(data))
    info = {".nv.info.k": elf.Section(".nv.info.k", 8, b"\x04\x05\x0c\x00\x01\x00\x00\x00")}
    assert elf.max_threads(info, "k") is None


def test_a_cut_fat_binary_is_refused(monkeypatch):
    data = elf._FAT_HEADER.pack(elf._FAT_MAGIC, 1, 16, 64) + bytes(32)
    section = elf.Section(".nv_fatbin", len(data), data)
    monkeypatch.setattr(elf, "sections", lambda _: {".nv_fatbin": section})
    with pytest.raises(ExplainError, match=r"the fat binary at byte 0 of .* is cut"):
        list(elf.fat_binaries(b""))
