// Matrix multiply with fused epilogues. An epilogue is a list of operations applied to each accumulator in
// order; the entry point picks one of the fixed lists below. 64x64 tiles, 4x4 accumulators a thread.
#include "ak/activation.cuh"
#include "ak/plan.h"

namespace ak {
namespace {

struct GemmModel {
  static constexpr int row_buckets = 46, col_buckets = 46, row_step = 128, col_step = 128, head_dim = 0;
  static constexpr Plan candidates[] = {{64, 64, 1}, {64, 64, 2}};
  static constexpr float cost(Problem p, Plan plan) { return wave_cost(p, plan, 1.0f, 0.0f); }
};

template <class T> struct AddBias {
  static __device__ float apply(const GemmArgs& a, float x, long long, int col, bool) {
    return x + to_float(static_cast<const T*>(a.bias)[col]);
  }
};
template <class T> struct AddResidual {
  static __device__ float apply(const GemmArgs& a, float x, long long at, int, bool) {
    return x + to_float(static_cast<const T*>(a.residual)[at]);
  }
};
template <class F> struct Activate {
  static __device__ float apply(const GemmArgs&, float x, long long, int, bool) { return F::forward(x); }
};
template <class T> struct ScaleAndTrackMax {
  static __device__ float apply(const GemmArgs& a, float x, long long, int, bool inside) {
    const float top = warp_max(inside ? fabsf(x) : 0.0f);
    if (threadIdx.x % 32 == 0) atomic_max(a.amax, top);
    return fminf(fmaxf(x * *a.out_scale, -Limits<T>::max), Limits<T>::max);
  }
};

template <class... Ops> struct Epilogue {
  static __device__ __forceinline__ float apply(const GemmArgs& a, float x, long long at, int col, bool inside) {
    ((x = Ops::apply(a, x, at, col, inside)), ...);
    return x;
  }
};

/// Rows and columns past the edge compute on zeros and store nothing.
template <class T, class Out, class E>
__global__ void __launch_bounds__(256) gemm_kernel(const GemmArgs a) {
  constexpr int tile = 64, depth = 16;
  __shared__ float as[depth][tile + 4], bs[depth][tile + 4];
  const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
  const int row0 = blockIdx.y * tile, col0 = blockIdx.x * tile;
  float acc[4][4] = {};
#pragma unroll 1
  for (int k0 = 0; k0 < a.k; k0 += depth) {
#pragma unroll 1
    for (int i = threadIdx.x; i < tile * depth; i += 256) {
      const int r = i / depth, k = i % depth;
      const bool k_in = k0 + k < a.k;
      as[k][r] = k_in && row0 + r < a.m
                     ? to_float(static_cast<const T*>(a.a)[static_cast<long long>(row0 + r) * a.k + k0 + k]) : 0.0f;
      bs[k][r] = k_in && col0 + r < a.n
                     ? to_float(static_cast<const T*>(a.b)[static_cast<long long>(col0 + r) * a.k + k0 + k]) : 0.0f;
    }
    __syncthreads();
#pragma unroll 2
    for (int k = 0; k < depth; ++k)
#pragma unroll
      for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j) acc[i][j] += as[k][ty * 4 + i] * bs[k][tx * 4 + j];
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < 4; ++i)
#pragma unroll 1
    for (int j = 0; j < 4; ++j) {
      const int row = row0 + ty * 4 + i, col = col0 + tx * 4 + j;
      const bool in = row < a.m && col < a.n;
      const long long at = in ? static_cast<long long>(row) * a.n + col : 0;
      const float picked = j == 0 ? acc[i][0] : j == 1 ? acc[i][1] : j == 2 ? acc[i][2] : acc[i][3];
      const float x = E::apply(a, in ? picked : 0.0f, at, in ? col : 0, in);
      if (in) static_cast<Out*>(a.d)[at] = from_float<Out>(x);
    }
}

template <class T, class Out, class... Ops>
bool launch(const GemmArgs& a) {
  const Plan& plan = PlanTable<GemmModel>::find(a.m, a.n);
  const dim3 grid(ceil_div(a.n, plan.block_n), ceil_div(a.m, plan.block_m));
  gemm_kernel<T, Out, Epilogue<Ops...>><<<grid, 256, 0, stream_of(a.stream)>>>(a);
  return true;
}

template <class T, class Out>
bool launch_epilogue(const GemmArgs& a) {
  switch (a.epilogue) {
    case 0: return launch<T, Out>(a);
    case 1: return launch<T, Out, AddBias<T>>(a);
    case 2: return launch<T, Out, AddBias<T>, Activate<Gelu>>(a);
    case 3: return launch<T, Out, AddBias<T>, Activate<Silu>>(a);
    case 4: return launch<T, Out, AddBias<T>, AddResidual<T>>(a);
    default: return false;
  }
}

}  // namespace
}  // namespace ak

int ak_gemm(const ak::GemmArgs* a) {
  using namespace ak;
  bool matched = false;
  HalfTypes::pick(a->in, [&](auto type) {
    using T = TypeFor<decltype(type)>;
    if (a->out == a->in) matched = launch_epilogue<T, T>(*a);
    if (a->out == DType::f32) matched = launch_epilogue<T, float>(*a);
    if (a->out == DType::e4m3 && a->epilogue == 2)
      matched = launch<T, __nv_fp8_e4m3, AddBias<T>, Activate<Gelu>, ScaleAndTrackMax<__nv_fp8_e4m3>>(*a);
  });
  return finish(matched);
}
