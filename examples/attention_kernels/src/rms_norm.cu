// RMS norm forward; the rows a block takes come from a plan table.
#include "ak/common.cuh"
#include "ak/plan.h"

namespace ak {
namespace {

struct RmsModel {
  static constexpr int row_buckets = 48, col_buckets = 32, row_step = 256, col_step = 256, head_dim = 0;
  static constexpr Plan candidates[] = {{1, 2048, 1}, {2, 2048, 1}, {8, 2048, 1}};
  static constexpr float cost(Problem p, Plan plan) { return wave_cost(p, plan, 2.0f, 0.0f); }
};

template <class T, int Hidden, int Threads>
__global__ void __launch_bounds__(Threads) rms_norm_kernel(const NormArgs a, int rows_per_block) {
  constexpr int per_thread = Hidden / Threads;
  const int end = min(a.rows, (static_cast<int>(blockIdx.x) + 1) * rows_per_block);
#pragma unroll 1
  for (int row = blockIdx.x * rows_per_block; row < end; ++row) {
    const long long at = static_cast<long long>(row) * Hidden;
    float x[per_thread], squares = 0.0f;
#pragma unroll
    for (int i = 0; i < per_thread; ++i) {
      x[i] = to_float(static_cast<const T*>(a.x)[at + i * Threads + threadIdx.x]);
      squares += x[i] * x[i];
    }
    const float rstd = rsqrtf(block_sum<Threads>(squares) / Hidden + a.eps);
#pragma unroll
    for (int i = 0; i < per_thread; ++i) {
      const int c = i * Threads + threadIdx.x;
      static_cast<T*>(a.y)[at + c] = from_float<T>(x[i] * rstd * to_float(static_cast<const T*>(a.gamma)[c]));
    }
    if (threadIdx.x == 0 && a.rstd != nullptr) a.rstd[row] = rstd;
  }
}

}  // namespace
}  // namespace ak

int ak_rms_norm_forward(const ak::NormArgs* a) {
  using namespace ak;
  bool matched = false;
  FloatTypes::pick(a->dtype, [&](auto type) {
    matched = Choices<1024, 2048, 4096, 8192>::pick(a->hidden, [&](auto hidden) {
      const int rows = PlanTable<RmsModel>::find(a->rows, a->hidden).block_m;
      rms_norm_kernel<TypeFor<decltype(type)>, decltype(hidden)::value, 512>
          <<<ceil_div(a->rows, rows), 512, 0, stream_of(a->stream)>>>(*a, rows);
    });
  });
  return finish(matched);
}
