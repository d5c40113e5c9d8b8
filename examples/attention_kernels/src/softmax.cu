// Row softmax. Short rows are handled by one warp with the row in registers, longer ones by a block that
// reads the row three times. Which warps-per-block to use for short rows comes from a plan table.
#include "ak/common.cuh"
#include "ak/plan.h"

namespace ak {
namespace {

struct SoftmaxModel {
  static constexpr int row_buckets = 44, col_buckets = 32, row_step = 512, col_step = 32, head_dim = 0;
  static constexpr Plan candidates[] = {{2, 256, 1}, {4, 256, 1}, {8, 256, 1}};
  static constexpr float cost(Problem p, Plan plan) { return wave_cost(p, plan, 1.0f, 0.0f); }
};

template <class T, int PerLane>
__global__ void softmax_warp_kernel(const ElementwiseArgs a) {
  const int row = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (row >= a.rows) return;
  const long long at = static_cast<long long>(row) * a.cols;
  float x[PerLane], top = -1.0e30f, sum = 0.0f;
#pragma unroll
  for (int i = 0; i < PerLane; ++i) {
    const int c = lane + 32 * i;
    x[i] = c < a.cols ? to_float(static_cast<const T*>(a.x)[at + c]) : -1.0e30f;
    top = fmaxf(top, x[i]);
  }
  top = warp_max(top);
#pragma unroll
  for (int i = 0; i < PerLane; ++i) sum += x[i] = lane + 32 * i < a.cols ? __expf(x[i] - top) : 0.0f;
  const float inverse = 1.0f / warp_sum(sum);
#pragma unroll
  for (int i = 0; i < PerLane; ++i)
    if (lane + 32 * i < a.cols) static_cast<T*>(a.y)[at + lane + 32 * i] = from_float<T>(x[i] * inverse);
}

template <class T>
__global__ void __launch_bounds__(256) softmax_block_kernel(const ElementwiseArgs a) {
  __shared__ float tops[8];
  const T* x = static_cast<const T*>(a.x) + static_cast<long long>(blockIdx.x) * a.cols;
  T* y = static_cast<T*>(a.y) + static_cast<long long>(blockIdx.x) * a.cols;
  float top = -1.0e30f, sum = 0.0f;
  for (int c = threadIdx.x; c < a.cols; c += 256) top = fmaxf(top, to_float(x[c]));
  top = warp_max(top);
  if (threadIdx.x % 32 == 0) tops[threadIdx.x / 32] = top;
  __syncthreads();
  for (float t : tops) top = fmaxf(top, t);
  for (int c = threadIdx.x; c < a.cols; c += 256) sum += __expf(to_float(x[c]) - top);
  const float inverse = 1.0f / block_sum<256>(sum);
  for (int c = threadIdx.x; c < a.cols; c += 256) y[c] = from_float<T>(__expf(to_float(x[c]) - top) * inverse);
}

}  // namespace
}  // namespace ak

int ak_softmax(const ak::ElementwiseArgs* a) {
  using namespace ak;
  const bool matched = FloatTypes::pick(a->in, [&](auto type) {
    using T = TypeFor<decltype(type)>;
    const int warps = PlanTable<SoftmaxModel>::find(a->rows, a->cols).block_m;
    const bool short_row = a->cols <= 1024 && Choices<1, 2, 4, 8, 16, 32>::pick(
        [&] { int n = 1; while (n * 32 < a->cols) n *= 2; return n; }(), [&](auto per_lane) {
          softmax_warp_kernel<T, decltype(per_lane)::value>
              <<<ceil_div(a->rows, warps), warps * 32, 0, stream_of(a->stream)>>>(*a);
        });
    if (!short_row) softmax_block_kernel<T><<<a->rows, 256, 0, stream_of(a->stream)>>>(*a);
  });
  return finish(matched);
}
