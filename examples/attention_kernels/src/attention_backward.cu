// Dense attention backward: delta = rowsum(dO * O), then one kernel over keys for dK and dV and one over
// queries for dQ, both recomputing the probabilities from the saved log-sum-exp. Launch shapes come from
// this unit's large plan table (sequence lengths up to 13k x 13k): see plan.h for what that costs to compile.
#include "ak/attention_tile.cuh"
#include "ak/plan.h"

namespace ak {
namespace {

struct BackwardModel {
  static constexpr int row_buckets = 54, col_buckets = 54, row_step = 256, col_step = 256, head_dim = 128;
  static constexpr Plan candidates[] = {{4, 32, 1}, {8, 32, 1}, {16, 64, 1}};
  static constexpr float cost(Problem p, Plan plan) { return wave_cost(p, plan, 2.5f, 0.0f); }
};

template <class T, int D>
__global__ void attention_delta_kernel(const AttentionGradArgs a) {
  const long long row = static_cast<long long>(blockIdx.x) * (blockDim.x / 32) + threadIdx.x / 32;
  if (row >= static_cast<long long>(a.fwd.batch) * a.fwd.heads * a.fwd.seq_q) return;
  const T* o = static_cast<const T*>(a.fwd.o) + row * D;
  const T* d_o = static_cast<const T*>(a.d_o) + row * D;
  float sum = 0.0f;
#pragma unroll
  for (int c = threadIdx.x % 32; c < D; c += 32) sum += to_float(o[c]) * to_float(d_o[c]);
  sum = warp_sum(sum);
  if (threadIdx.x % 32 == 0) a.delta[row] = sum;
}

/// A lane's share of a row: every 32nd column.
template <class T, int D>
struct Row {
  float v[D / 32];
  __device__ __forceinline__ void read(const T* base, long long row) {
#pragma unroll
    for (int c = 0; c < D / 32; ++c) v[c] = to_float(base[row * D + threadIdx.x % 32 + 32 * c]);
  }
  __device__ __forceinline__ void write(T* base, long long row) const {
#pragma unroll
    for (int c = 0; c < D / 32; ++c) base[row * D + threadIdx.x % 32 + 32 * c] = from_float<T>(v[c]);
  }
  __device__ __forceinline__ float dot(const Row& other) const {
    float sum = 0.0f;
#pragma unroll
    for (int c = 0; c < D / 32; ++c) sum += v[c] * other.v[c];
    return warp_sum(sum);
  }
  __device__ __forceinline__ void add(float scale, const Row& other) {
#pragma unroll
    for (int c = 0; c < D / 32; ++c) v[c] += scale * other.v[c];
  }
};

/// Probability and score gradient of one (query, key) pair.
template <class T, int D>
__device__ __forceinline__ float2 pair_gradient(const AttentionGradArgs& a, long long q_row, float slope,
                                                int distance, const Row<T, D>& q, const Row<T, D>& k,
                                                const Row<T, D>& v, const Row<T, D>& d_o) {
  const float s = q.dot(k) * a.fwd.scale + slope * static_cast<float>(distance);
  const float p = __expf(s - a.fwd.lse[q_row]);
  return make_float2(p, p * (d_o.dot(v) - a.delta[q_row]) * a.fwd.scale);
}

template <class T, int D, Mask M>
__global__ void attention_dkdv_kernel(const AttentionGradArgs a) {
  const AttentionArgs& f = a.fwd;
  const int key = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, group = f.heads / f.kv_heads;
  if (key >= f.seq_kv) return;
  const long long kv_row = (static_cast<long long>(blockIdx.z) * f.kv_heads + blockIdx.y) * f.seq_kv + key;
  Row<T, D> k, v, q, d_o, dk = {}, dv = {};
  k.read(static_cast<const T*>(f.k), kv_row);
  v.read(static_cast<const T*>(f.v), kv_row);
  for (int head = blockIdx.y * group; head < (static_cast<int>(blockIdx.y) + 1) * group; ++head) {
    const long long first = (static_cast<long long>(blockIdx.z) * f.heads + head) * f.seq_q;
    const float slope = f.alibi == nullptr ? 0.0f : f.alibi[head];
    for (int row = 0; row < f.seq_q; ++row) {
      if (!visible<M>(row, key, f.seq_q, f.seq_kv, f.window)) continue;
      q.read(static_cast<const T*>(f.q), first + row);
      d_o.read(static_cast<const T*>(a.d_o), first + row);
      const float2 g = pair_gradient(a, first + row, slope, key - row - f.seq_kv + f.seq_q, q, k, v, d_o);
      dv.add(g.x, d_o);
      dk.add(g.y, q);
    }
  }
  dk.write(static_cast<T*>(a.dk), kv_row);
  dv.write(static_cast<T*>(a.dv), kv_row);
}

template <class T, int D, Mask M>
__global__ void attention_dq_kernel(const AttentionGradArgs a) {
  const AttentionArgs& f = a.fwd;
  const int row = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, head = blockIdx.y;
  if (row >= f.seq_q) return;
  const long long q_row = (static_cast<long long>(blockIdx.z) * f.heads + head) * f.seq_q + row;
  const long long first =
      (static_cast<long long>(blockIdx.z) * f.kv_heads + head / (f.heads / f.kv_heads)) * f.seq_kv;
  const float slope = f.alibi == nullptr ? 0.0f : f.alibi[head];
  Row<T, D> q, d_o, k, v, dq = {};
  q.read(static_cast<const T*>(f.q), q_row);
  d_o.read(static_cast<const T*>(a.d_o), q_row);
  for (int key = 0; key < f.seq_kv; ++key) {
    if (!visible<M>(row, key, f.seq_q, f.seq_kv, f.window)) continue;
    k.read(static_cast<const T*>(f.k), first + key);
    v.read(static_cast<const T*>(f.v), first + key);
    dq.add(pair_gradient(a, q_row, slope, key - row - f.seq_kv + f.seq_q, q, k, v, d_o).y, k);
  }
  dq.write(static_cast<T*>(a.dq), q_row);
}

template <class T, int D, Mask M>
void launch(const AttentionGradArgs& a) {
  const AttentionArgs& f = a.fwd;
  const int warps = PlanTable<BackwardModel>::find(f.seq_q, f.seq_kv).block_m;
  const cudaStream_t stream = stream_of(f.stream);
  const long long rows = static_cast<long long>(f.batch) * f.heads * f.seq_q;
  attention_delta_kernel<T, D><<<blocks_for(rows, 8), 256, 0, stream>>>(a);
  attention_dkdv_kernel<T, D, M>
      <<<dim3(ceil_div(f.seq_kv, warps), f.kv_heads, f.batch), warps * 32, 0, stream>>>(a);
  attention_dq_kernel<T, D, M><<<dim3(ceil_div(f.seq_q, warps), f.heads, f.batch), warps * 32, 0, stream>>>(a);
}

}  // namespace
}  // namespace ak

int ak_attention_backward(const ak::AttentionGradArgs* a) {
  using namespace ak;
  bool matched = false;
  HalfTypes::pick(a->fwd.dtype, [&](auto type) {
    Choices<64, 128>::pick(a->fwd.head_dim, [&](auto dim) {
      matched = Choices<Mask::none, Mask::causal, Mask::window>::pick(a->fwd.mask, [&](auto mask) {
        launch<TypeFor<decltype(type)>, decltype(dim)::value, decltype(mask)::value>(*a);
      });
    });
  });
  return finish(matched);
}
