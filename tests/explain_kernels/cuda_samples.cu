// Small CUDA kernels whose machine code is known in advance; compiled only, never run.

__global__ void wide_kernel(const float4* x, const float4* y, float4* out) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  const float4 a = x[i], b = y[i];
  out[i] = make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}

__global__ void scalar_kernel(const float* __restrict__ x, const float* __restrict__ y,
                              float* __restrict__ out) {
  const int i = 4 * (blockIdx.x * blockDim.x + threadIdx.x);
#pragma unroll
  for (int j = 0; j < 4; ++j) out[i + j] = x[i + j] + y[i + j];
}

// 256 floats with an index that only the run knows: local memory, and no spill.
__global__ void local_array_kernel(const float* x, const int* index, float* out) {
  float kept[256];
  for (int i = 0; i < 256; ++i) kept[i] = x[i * 32 + threadIdx.x];
  float sum = 0.0f;
  for (int i = 0; i < 32; ++i) sum += kept[index[i * 32 + threadIdx.x] & 255];
  out[threadIdx.x] = sum;
}

// As many values alive at once as no 32 registers hold.
__global__ void __launch_bounds__(1024, 2) spilling_kernel(const float* x, float* out) {
  float v[96];
#pragma unroll
  for (int i = 0; i < 96; ++i) v[i] = x[i * 1024 + threadIdx.x];
  __syncthreads();
#pragma unroll
  for (int i = 0; i < 96; ++i) v[i] = v[i] * v[(i * 37 + 11) % 96] + v[(i * 53 + 7) % 96];
#pragma unroll
  for (int i = 0; i < 96; ++i) out[i * 1024 + threadIdx.x] = v[i];
}

__global__ void shared_kernel(float* out) {
  __shared__ float tile[64];
  tile[threadIdx.x] = out[threadIdx.x];
  __syncthreads();
  out[threadIdx.x] = tile[63 - threadIdx.x];
}

template <int kTimes>
__global__ void repeat_kernel(float* out) {
#pragma unroll
  for (int i = 0; i < kTimes; ++i) out[threadIdx.x + 32 * i] += 1.0f;
}

template __global__ void repeat_kernel<1>(float*);
template __global__ void repeat_kernel<4>(float*);

// Its name begins another's.
__global__ void repeat_kernel_twice(float* out) { out[threadIdx.x] *= 2.0f; }
