// Device helpers every kernel uses: conversions, packed loads and stores, warp and block reductions.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <cuda_runtime.h>

#include "ak/api.h"
#include "ak/dispatch.h"

namespace ak {

template <DType D> struct TypeOf;
template <> struct TypeOf<DType::f32> { using type = float; };
template <> struct TypeOf<DType::f16> { using type = __half; };
template <> struct TypeOf<DType::bf16> { using type = __nv_bfloat16; };
template <> struct TypeOf<DType::e4m3> { using type = __nv_fp8_e4m3; };
template <> struct TypeOf<DType::e5m2> { using type = __nv_fp8_e5m2; };
template <class C> using TypeFor = typename TypeOf<C::value>::type;

using HalfTypes = Choices<DType::f16, DType::bf16>;
using FloatTypes = Choices<DType::f32, DType::f16, DType::bf16>;
using Fp8Types = Choices<DType::e4m3, DType::e5m2>;

template <class T> __device__ __forceinline__ float to_float(T x) { return static_cast<float>(x); }
template <class T> __device__ __forceinline__ T from_float(float x) { return static_cast<T>(x); }

template <class T> struct Limits { static constexpr float max = 3.0e38f; };
template <> struct Limits<__nv_fp8_e4m3> { static constexpr float max = 448.0f; };
template <> struct Limits<__nv_fp8_e5m2> { static constexpr float max = 57344.0f; };

/// N consecutive elements, moved as one aligned access.
template <class T, int N>
struct alignas(sizeof(T) * N) Pack {
  T v[N];
};

template <int N, class T>
__device__ __forceinline__ void load(const T* p, float (&out)[N]) {
  const Pack<T, N> pack = *reinterpret_cast<const Pack<T, N>*>(p);
#pragma unroll
  for (int i = 0; i < N; ++i) out[i] = to_float(pack.v[i]);
}

template <int N, class T>
__device__ __forceinline__ void store(T* p, const float (&in)[N]) {
  Pack<T, N> pack;
#pragma unroll
  for (int i = 0; i < N; ++i) pack.v[i] = from_float<T>(in[i]);
  *reinterpret_cast<Pack<T, N>*>(p) = pack;
}

__device__ __forceinline__ float warp_sum(float x) {
#pragma unroll
  for (int d = 16; d > 0; d >>= 1) x += __shfl_xor_sync(0xffffffffu, x, d);
  return x;
}

__device__ __forceinline__ float warp_max(float x) {
#pragma unroll
  for (int d = 16; d > 0; d >>= 1) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, d));
  return x;
}

/// Sum over a block of Threads; every thread gets the result.
template <int Threads>
__device__ __forceinline__ float block_sum(float x) {
  __shared__ float lanes[Threads / 32];
  x = warp_sum(x);
  __syncthreads();
  if (threadIdx.x % 32 == 0) lanes[threadIdx.x / 32] = x;
  __syncthreads();
  float total = 0.0f;
#pragma unroll
  for (int i = 0; i < Threads / 32; ++i) total += lanes[i];
  return total;
}

/// Maximum for non-negative floats, whose bit patterns order like integers.
__device__ __forceinline__ void atomic_max(float* address, float x) {
  atomicMax(reinterpret_cast<int*>(address), __float_as_int(x));
}

inline cudaStream_t stream_of(void* s) { return static_cast<cudaStream_t>(s); }

/// Result of an entry point: matched says whether dispatch found a kernel.
inline int finish(bool matched) {
  if (!matched) return static_cast<int>(Status::unsupported);
  return static_cast<int>(cudaGetLastError() == cudaSuccess ? Status::ok : Status::launch_failed);
}

inline int blocks_for(long long work, int per_block) {
  return static_cast<int>((work + per_block - 1) / per_block);
}

}  // namespace ak
