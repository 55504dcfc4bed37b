// wgmma (sm_90a): a warpgroup multiplies two tiles that lie in shared memory; the fp32 sums stay in
// its registers. Nothing is loaded into registers first: a 64-bit descriptor says where an operand
// is.
//
// Who holds what, of a 64 x kN tile (warp and lane within the warpgroup): thread holds rows
// 16 * warp + lane / 4 and the one 8 below; acc[4 * j] and acc[4 * j + 1] are columns
// 8 * j + 2 * (lane % 4) and the next of the first row, acc[4 * j + 2] and [4 * j + 3] of the
// second.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

namespace cuda_vs_triton {

constexpr int kWgmmaM = 64;  // rows of every wgmma
constexpr int kWgmmaK = 16;  // of 16-bit elements

// Where an operand's tile lies in shared memory, as boxes of 128-byte rows with the 128-byte
// swizzle. Along K: a row of a box is one m (or n), its 64 elements are consecutive k; rows follow
// each other without end. Across K (a transposed x, or a row-major w): a row of a box is one k, its
// elements are 64 consecutive m (or n), and the next 64 of them are in the next box, box_bytes
// further on.
enum class Major : int { kAlongK = 0, kAcrossK = 1 };

__device__ __forceinline__ uint64_t operand_descriptor(uint32_t smem, int box_bytes) {
  constexpr uint64_t kSwizzle128 = 1ull << 62;
  constexpr uint64_t kEightRows = (8 * 128) >> 4;  // from a group of eight rows to the next
  return kSwizzle128 | kEightRows << 32 | static_cast<uint64_t>(box_bytes >> 4) << 16 |
         (smem & 0x3ffff) >> 4;
}

// What to add to a descriptor to move it.
__device__ __forceinline__ constexpr uint64_t descriptor_bytes(int bytes) { return bytes >> 4; }

// The next kWgmmaK of K: 32 bytes along the rows, or 16 rows of 128 bytes.
template <Major kMajor>
constexpr int kStepBytes = kMajor == Major::kAlongK ? kWgmmaK * 2 : kWgmmaK * 128;

// Before the first wgmma of a batch: registers and shared memory written by this thread are seen.
__device__ __forceinline__ void wgmma_fence() {
  asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory");
}
__device__ __forceinline__ void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory");
}
// Returns when at most kPending of the newest batches still run. An accumulator may be read after
// its batch has ended and keep_in_registers has named it.
template <int kPending>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;\n" ::"n"(kPending) : "memory");
}

// The compiler knows nothing of batches: this stops it from moving reads of acc above a wait.
template <int kCount>
__device__ __forceinline__ void keep_in_registers(float (&acc)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(acc[i])::"memory");
}

#define CVT_OPERANDS_32                                                    \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define CVT_OPERANDS_64                                                              \
  CVT_OPERANDS_32                                                                    \
  ", "                                                                               \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define CVT_OPERANDS_128                                                                       \
  CVT_OPERANDS_64                                                                              \
  ", "                                                                                         \
  "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "           \
  "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "           \
  "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, "     \
  "%111, "                                                                                     \
  "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, " \
  "%127"
#define CVT_SUMS_8(i)                                                                   \
  "+f"(acc[i]), "+f"(acc[i + 1]), "+f"(acc[i + 2]), "+f"(acc[i + 3]), "+f"(acc[i + 4]), \
      "+f"(acc[i + 5]), "+f"(acc[i + 6]), "+f"(acc[i + 7])
#define CVT_SUMS_32(i) CVT_SUMS_8(i), CVT_SUMS_8(i + 8), CVT_SUMS_8(i + 16), CVT_SUMS_8(i + 24)
#define CVT_SUMS_64 CVT_SUMS_32(0), CVT_SUMS_32(32)
#define CVT_SUMS_128 CVT_SUMS_64, CVT_SUMS_32(64), CVT_SUMS_32(96)

// SHAPE m64nNk16; OPERANDS and SUMS the N / 2 accumulators; X, W, ADD, X_MAJOR, W_MAJOR the numbers
// of the operands that follow them. The two ones are the signs of x and w.
#define CVT_WGMMA(SHAPE, TYPE, OPERANDS, SUMS, X, W, ADD, X_MAJOR, W_MAJOR)                      \
  asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, " ADD                                       \
               ", 0;\n"                                                                          \
               "wgmma.mma_async.sync.aligned." SHAPE ".f32." TYPE "." TYPE " {" OPERANDS "}, " X \
               ", " W ", add, 1, 1, " X_MAJOR ", " W_MAJOR ";\n}\n"                              \
               : SUMS                                                                            \
               : "l"(x), "l"(w), "r"(add), "n"(static_cast<int>(kX)), "n"(static_cast<int>(kW)))

// acc (64 x kN) = x (64 x 16) * w (16 x kN), plus acc where `add` is not 0; kN = 2 * kSums. x and w
// are descriptors. Runs asynchronously: see wgmma_fence, wgmma_commit, wgmma_wait.
template <typename T, Major kX, Major kW, int kSums>
__device__ __forceinline__ void wgmma(float (&acc)[kSums], uint64_t x, uint64_t w, int add) {
  constexpr bool kBF16 = std::is_same_v<T, __nv_bfloat16>;
  static_assert(kSums == 32 || kSums == 64 || kSums == 128, "kN of 64, 128 or 256");
  if constexpr (kSums == 32) {
    if constexpr (kBF16) {
      CVT_WGMMA("m64n64k16", "bf16", CVT_OPERANDS_32, CVT_SUMS_32(0), "%32", "%33", "%34", "%35",
                "%36");
    } else {
      CVT_WGMMA("m64n64k16", "f16", CVT_OPERANDS_32, CVT_SUMS_32(0), "%32", "%33", "%34", "%35",
                "%36");
    }
  } else if constexpr (kSums == 64) {
    if constexpr (kBF16) {
      CVT_WGMMA("m64n128k16", "bf16", CVT_OPERANDS_64, CVT_SUMS_64, "%64", "%65", "%66", "%67",
                "%68");
    } else {
      CVT_WGMMA("m64n128k16", "f16", CVT_OPERANDS_64, CVT_SUMS_64, "%64", "%65", "%66", "%67",
                "%68");
    }
  } else {
    if constexpr (kBF16) {
      CVT_WGMMA("m64n256k16", "bf16", CVT_OPERANDS_128, CVT_SUMS_128, "%128", "%129", "%130",
                "%131", "%132");
    } else {
      CVT_WGMMA("m64n256k16", "f16", CVT_OPERANDS_128, CVT_SUMS_128, "%128", "%129", "%130", "%131",
                "%132");
    }
  }
}

#undef CVT_WGMMA
#undef CVT_OPERANDS_32
#undef CVT_OPERANDS_64
#undef CVT_OPERANDS_128
#undef CVT_SUMS_8
#undef CVT_SUMS_32
#undef CVT_SUMS_64
#undef CVT_SUMS_128

}  // namespace cuda_vs_triton
