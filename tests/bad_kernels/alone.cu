// One launch of a kernel of bad_kernels.cu, by name, with exact allocations: the program that
// compute-sanitizer watches. torch's allocator rounds sizes up, so a small overrun would go unseen.

#include <cstdio>
#include <map>
#include <string>

#include "bad_kernels.cu"

int main(int argc, char** argv) {
  using Launcher = int (*)(const float*, const float*, float*, int64_t, void*);
  const std::map<std::string, Launcher> launchers = {
      {"right", right},
      {"missing_barrier", missing_barrier},
      {"reads_past_end_unseen", reads_past_end_unseen},
      {"writes_past_end", writes_past_end},
  };
  const auto found = argc == 2 ? launchers.find(argv[1]) : launchers.end();
  if (found == launchers.end()) {
    std::fprintf(stderr, "usage: %s right|missing_barrier|...\n", argv[0]);
    return 2;
  }
  // No multiple of what cudaMalloc rounds up to: the next tensor must not begin where one ends, or
  // a read past an end would be of memory that is allocated.
  constexpr int64_t kElements = 1000;
  float *x, *y, *out;
  for (float** memory : {&x, &y, &out}) {
    const cudaError_t error = cudaMalloc(memory, kElements * sizeof(float));
    if (error != cudaSuccess) {
      std::fprintf(stderr, "cudaMalloc: %s\n", cudaGetErrorString(error));
      return 3;
    }
    cudaMemset(*memory, 0, kElements * sizeof(float));
  }
  const int launched = found->second(x, y, out, kElements, nullptr);
  const cudaError_t ended = cudaDeviceSynchronize();
  std::printf("%s: launch %d, end %d\n", argv[1], launched, ended);
  return launched != cudaSuccess || ended != cudaSuccess;
}
