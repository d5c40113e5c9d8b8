// Decoding: one new query token a sequence against a paged cache of keys and values that may be fp8. The
// cache is cut into splits, each split leaves a partial softmax, a second kernel combines them.
#include "ak/common.cuh"
#include "ak/plan.h"

namespace ak {
namespace {

struct DecodeModel {
  static constexpr int row_buckets = 32, col_buckets = 60, row_step = 8, col_step = 512, head_dim = 128;
  static constexpr Plan candidates[] = {{1, 32, 1, 1}, {1, 32, 1, 2}, {1, 32, 1, 4}, {1, 32, 1, 8}};
  static constexpr float cost(Problem p, Plan plan) { return wave_cost(p, plan, 64.0f, 6.0f); }
};

/// A warp walks every fourth token of its split; partial holds D sums, then maximum and denominator.
template <class T, class C, int D>
__global__ void __launch_bounds__(128) decode_split_kernel(const DecodeArgs a) {
  constexpr int columns = D / 32;
  __shared__ float shared[4][D + 2];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, head = blockIdx.x, batch = blockIdx.y;
  const int split = blockIdx.z, length = a.lengths[batch];
  const int share = (length + gridDim.z - 1) / gridDim.z;
  const int begin = split * share, end = min(length, begin + share);
  const long long row = static_cast<long long>(batch) * a.heads + head;

  float q[columns], acc[columns] = {};
  load(static_cast<const T*>(a.q) + row * D + lane * columns, q);
  float peak = -1.0e30f, sum = 0.0f;
  for (int token = begin + warp; token < end; token += 4) {
    const long long page = a.page_table[batch * a.max_pages + token / a.page_size];
    const long long at =
        ((page * a.kv_heads + head / (a.heads / a.kv_heads)) * a.page_size + token % a.page_size) * D;
    float k[columns], v[columns], s = 0.0f;
    load(static_cast<const C*>(a.k_pages) + at + lane * columns, k);
    load(static_cast<const C*>(a.v_pages) + at + lane * columns, v);
#pragma unroll
    for (int c = 0; c < columns; ++c) s += q[c] * k[c];
    s = warp_sum(s) * a.scale * a.k_scale;
    const float next = fmaxf(peak, s), shrink = __expf(peak - next), p = __expf(s - next);
    sum = sum * shrink + p;
    peak = next;
#pragma unroll
    for (int c = 0; c < columns; ++c) acc[c] = acc[c] * shrink + p * a.v_scale * v[c];
  }
#pragma unroll
  for (int c = 0; c < columns; ++c) shared[warp][lane * columns + c] = acc[c];
  if (lane == 0) {
    shared[warp][D] = peak;
    shared[warp][D + 1] = sum;
  }
  __syncthreads();

  float top = shared[0][D], total = 0.0f;
#pragma unroll
  for (int w = 1; w < 4; ++w) top = fmaxf(top, shared[w][D]);
  float* out = a.partial + (split * static_cast<long long>(a.batch) * a.heads + row) * (D + 2);
  for (int d = threadIdx.x; d < D; d += 128) {
    float x = 0.0f;
#pragma unroll
    for (int w = 0; w < 4; ++w) x += shared[w][d] * __expf(shared[w][D] - top);
    out[d] = x;
  }
#pragma unroll
  for (int w = 0; w < 4; ++w) total += shared[w][D + 1] * __expf(shared[w][D] - top);
  if (threadIdx.x == 0) {
    out[D] = top;
    out[D + 1] = total;
  }
}

template <class T, int D>
__global__ void decode_combine_kernel(const DecodeArgs a, int splits) {
  const long long rows = static_cast<long long>(a.batch) * a.heads, row = blockIdx.x;
  float top = -1.0e30f, sum = 0.0f, x = 0.0f;
  for (int s = 0; s < splits; ++s) top = fmaxf(top, a.partial[(s * rows + row) * (D + 2) + D]);
  for (int s = 0; s < splits; ++s) {
    const float* part = a.partial + (s * rows + row) * (D + 2);
    const float weight = __expf(part[D] - top);
    sum += weight * part[D + 1];
    x += weight * part[threadIdx.x];
  }
  static_cast<T*>(a.o)[row * D + threadIdx.x] = from_float<T>(sum > 0.0f ? x / sum : 0.0f);
}

template <class T, class C, int D>
void launch(const DecodeArgs& a) {
  const int splits = PlanTable<DecodeModel>::find(a.batch * a.heads, a.max_length).splits;
  decode_split_kernel<T, C, D><<<dim3(a.heads, a.batch, splits), 128, 0, stream_of(a.stream)>>>(a);
  decode_combine_kernel<T, D><<<a.batch * a.heads, D, 0, stream_of(a.stream)>>>(a, splits);
}

}  // namespace
}  // namespace ak

int ak_attention_decode(const ak::DecodeArgs* a) {
  using namespace ak;
  using CacheTypes = Choices<DType::f16, DType::bf16, DType::e4m3, DType::e5m2>;
  bool matched = false;
  HalfTypes::pick(a->dtype, [&](auto type) {
    CacheTypes::pick(a->kv_dtype, [&](auto cache) {
      matched = Choices<64, 128, 256>::pick(a->head_dim, [&](auto dim) {
        launch<TypeFor<decltype(type)>, TypeFor<decltype(cache)>, decltype(dim)::value>(*a);
      });
    });
  });
  return finish(matched);
}
