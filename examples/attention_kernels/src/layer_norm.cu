// Layer norm forward and backward. A block normalises one row at a time and keeps it in registers, so the
// hidden size is a template argument; how many rows a block takes comes from a plan table.
#include "ak/common.cuh"
#include "ak/plan.h"

namespace ak {
namespace {

struct NormModel {
  static constexpr int row_buckets = 64, col_buckets = 28, row_step = 128, col_step = 256, head_dim = 0;
  static constexpr Plan candidates[] = {{1, 1024, 1}, {4, 1024, 1}, {16, 1024, 1}};
  static constexpr float cost(Problem p, Plan plan) { return wave_cost(p, plan, 4.0f, 0.0f); }
};

template <class T, int Hidden, int Threads>
__global__ void __launch_bounds__(Threads) layer_norm_forward_kernel(const NormArgs a, int rows_per_block) {
  constexpr int per_thread = Hidden / Threads;
  const int end = min(a.rows, (static_cast<int>(blockIdx.x) + 1) * rows_per_block);
#pragma unroll 1
  for (int row = blockIdx.x * rows_per_block; row < end; ++row) {
    const long long at = static_cast<long long>(row) * Hidden;
    float x[per_thread], sum = 0.0f, squares = 0.0f;
#pragma unroll
    for (int i = 0; i < per_thread; ++i)
      sum += x[i] = to_float(static_cast<const T*>(a.x)[at + i * Threads + threadIdx.x]);
    const float mean = block_sum<Threads>(sum) / Hidden;
#pragma unroll
    for (int i = 0; i < per_thread; ++i) squares += (x[i] - mean) * (x[i] - mean);
    const float rstd = rsqrtf(block_sum<Threads>(squares) / Hidden + a.eps);
#pragma unroll
    for (int i = 0; i < per_thread; ++i) {
      const int c = i * Threads + threadIdx.x;
      const float y = (x[i] - mean) * rstd * to_float(static_cast<const T*>(a.gamma)[c]);
      static_cast<T*>(a.y)[at + c] = from_float<T>(y + to_float(static_cast<const T*>(a.beta)[c]));
    }
    if (threadIdx.x == 0) {
      a.mean[row] = mean;
      a.rstd[row] = rstd;
    }
  }
}

/// dgamma and dbeta are summed over a block's rows in registers, then added to float buffers.
template <class T, int Hidden, int Threads>
__global__ void __launch_bounds__(Threads) layer_norm_backward_kernel(const NormArgs a, int rows_per_block) {
  constexpr int per_thread = Hidden / Threads;
  const int end = min(a.rows, (static_cast<int>(blockIdx.x) + 1) * rows_per_block);
  float dgamma[per_thread] = {}, dbeta[per_thread] = {};
#pragma unroll 1
  for (int row = blockIdx.x * rows_per_block; row < end; ++row) {
    const long long at = static_cast<long long>(row) * Hidden;
    const float mean = a.mean[row], rstd = a.rstd[row];
    float xhat[per_thread], g[per_thread], sum_g = 0.0f, sum_gx = 0.0f;
#pragma unroll
    for (int i = 0; i < per_thread; ++i) {
      const int c = i * Threads + threadIdx.x;
      const float dy = to_float(static_cast<const T*>(a.dy)[at + c]);
      xhat[i] = (to_float(static_cast<const T*>(a.x)[at + c]) - mean) * rstd;
      g[i] = dy * to_float(static_cast<const T*>(a.gamma)[c]);
      dgamma[i] += dy * xhat[i];
      dbeta[i] += dy;
      sum_g += g[i];
      sum_gx += g[i] * xhat[i];
    }
    const float mean_g = block_sum<Threads>(sum_g) / Hidden, mean_gx = block_sum<Threads>(sum_gx) / Hidden;
#pragma unroll
    for (int i = 0; i < per_thread; ++i)
      static_cast<T*>(a.dx)[at + i * Threads + threadIdx.x] =
          from_float<T>(rstd * (g[i] - mean_g - xhat[i] * mean_gx));
  }
#pragma unroll
  for (int i = 0; i < per_thread; ++i) {
    atomicAdd(a.dgamma + i * Threads + threadIdx.x, dgamma[i]);
    atomicAdd(a.dbeta + i * Threads + threadIdx.x, dbeta[i]);
  }
}

template <class F>
int dispatch(const NormArgs& a, F&& launch) {
  bool matched = false;
  FloatTypes::pick(a.dtype, [&](auto type) {
    matched = Choices<768, 1024, 2048, 4096>::pick(a.hidden, [&](auto hidden) {
      launch(type, hidden, PlanTable<NormModel>::find(a.rows, a.hidden).block_m);
    });
  });
  return finish(matched);
}

}  // namespace
}  // namespace ak

int ak_layer_norm_forward(const ak::NormArgs* a) {
  return ak::dispatch(*a, [&](auto type, auto hidden, int rows) {
    ak::layer_norm_forward_kernel<ak::TypeFor<decltype(type)>, decltype(hidden)::value, 256>
        <<<ak::ceil_div(a->rows, rows), 256, 0, ak::stream_of(a->stream)>>>(*a, rows);
  });
}

int ak_layer_norm_backward(const ak::NormArgs* a) {
  return ak::dispatch(*a, [&](auto type, auto hidden, int rows) {
    ak::layer_norm_backward_kernel<ak::TypeFor<decltype(type)>, decltype(hidden)::value, 256>
        <<<ak::ceil_div(a->rows, rows), 256, 0, ak::stream_of(a->stream)>>>(*a, rows);
  });
}
