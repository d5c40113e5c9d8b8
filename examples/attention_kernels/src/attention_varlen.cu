// Attention forward over packed sequences of different lengths: cu_q and cu_kv hold prefix sums, a grid row
// is one sequence. Same loop as the dense kernel; the plan table covers the longest sequence of a batch.
#include "ak/attention_tile.cuh"
#include "ak/plan.h"

namespace ak {
namespace {

struct VarlenModel {
  static constexpr int row_buckets = 48, col_buckets = 48, row_step = 128, col_step = 128, head_dim = 128;
  static constexpr Plan candidates[] = {{16, 64, 2}, {32, 64, 2}, {64, 64, 2}};
  static constexpr float cost(Problem p, Plan plan) { return wave_cost(p, plan, 1.0f, 0.0f); }
};

/// Tensors are [tokens, head_dim] for each head: [heads, total tokens, head_dim].
template <class T, int D, Mask M>
__global__ void __launch_bounds__(512) attention_varlen_kernel(const AttentionArgs a) {
  extern __shared__ __align__(128) char smem[];
  const int head = blockIdx.y, kv_head = head / (a.heads / a.kv_heads), seq = blockIdx.z;
  const int q_begin = a.cu_q[seq], rows = a.cu_q[seq + 1] - q_begin;
  const int kv_begin = a.cu_kv[seq], cols = a.cu_kv[seq + 1] - kv_begin;
  const int first_row = blockIdx.x * (blockDim.x / 32 * kRowsPerWarp);
  if (first_row >= rows) return;
  const long long q_at = static_cast<long long>(head) * a.cu_q[a.batch] + q_begin;
  const long long kv_at = static_cast<long long>(kv_head) * a.cu_kv[a.batch] + kv_begin;
  attend<T, D, 64, 2, M>(a, smem, static_cast<const T*>(a.q) + q_at * D, static_cast<const T*>(a.k) + kv_at * D,
                         static_cast<const T*>(a.v) + kv_at * D, static_cast<T*>(a.o) + q_at * D,
                         a.lse == nullptr ? nullptr : a.lse + q_at, first_row, rows, cols,
                         a.alibi == nullptr ? 0.0f : a.alibi[head]);
}

template <class T, int D, Mask M>
void launch(const AttentionArgs& a) {
  const int block_m = PlanTable<VarlenModel>::find(a.seq_q, a.seq_kv).block_m;
  const int bytes = attention_smem_bytes<T, D, 64, 2>(block_m);
  const auto kernel = attention_varlen_kernel<T, D, M>;
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  const dim3 grid(ceil_div(a.seq_q, block_m), a.heads, a.batch);
  kernel<<<grid, block_m / kRowsPerWarp * 32, bytes, stream_of(a.stream)>>>(a);
}

}  // namespace
}  // namespace ak

int ak_attention_varlen(const ak::AttentionArgs* a) {
  using namespace ak;
  bool matched = false;
  HalfTypes::pick(a->dtype, [&](auto type) {
    Choices<64, 128>::pick(a->head_dim, [&](auto dim) {
      matched = Choices<Mask::none, Mask::causal>::pick(a->mask, [&](auto mask) {
        launch<TypeFor<decltype(type)>, decltype(dim)::value, decltype(mask)::value>(*a);
      });
    });
  });
  return finish(matched);
}
