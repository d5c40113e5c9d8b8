// Dense attention forward: one instantiation for every element type, head size, tile and mask.
// On sm_90 each of them searches its shared-memory rings at compile time (see layout.cuh).
#include "ak/attention_tile.cuh"
#include "ak/plan.h"

namespace ak {
namespace {

struct ForwardModel {
  static constexpr int row_buckets = 16, col_buckets = 16, row_step = 256, col_step = 512, head_dim = 128;
  static constexpr Plan candidates[] = {{16, 64, 2}, {32, 64, 2}, {32, 32, 3}, {64, 32, 3}};
  static constexpr float cost(Problem p, Plan plan) { return wave_cost(p, plan, 1.0f, 0.0f); }
};

template <class T, int D, int BlockN, int Stages, Mask M>
__global__ void __launch_bounds__(512) attention_forward_kernel(const AttentionArgs a) {
  extern __shared__ __align__(128) char smem[];
  const int head = blockIdx.y, batch = blockIdx.z, kv_head = head / (a.heads / a.kv_heads);
  const long long q_at = (static_cast<long long>(batch) * a.heads + head) * a.seq_q;
  const long long kv_at = (static_cast<long long>(batch) * a.kv_heads + kv_head) * a.seq_kv;
  attend<T, D, BlockN, Stages, M>(
      a, smem, static_cast<const T*>(a.q) + q_at * D, static_cast<const T*>(a.k) + kv_at * D,
      static_cast<const T*>(a.v) + kv_at * D, static_cast<T*>(a.o) + q_at * D,
      a.lse == nullptr ? nullptr : a.lse + q_at, blockIdx.x * (blockDim.x / 32 * kRowsPerWarp), a.seq_q,
      a.seq_kv, a.alibi == nullptr ? 0.0f : a.alibi[head]);
}

template <class T, int D, int BlockN, int Stages, Mask M>
void launch(const AttentionArgs& a, int block_m) {
  const auto kernel = attention_forward_kernel<T, D, BlockN, Stages, M>;
  const int bytes = attention_smem_bytes<T, D, BlockN, Stages>(block_m);
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  const dim3 grid(ceil_div(a.seq_q, block_m), a.heads, a.batch);
  kernel<<<grid, block_m / kRowsPerWarp * 32, bytes, stream_of(a.stream)>>>(a);
}

template <class T, int D, Mask M>
void launch_planned(const AttentionArgs& a) {
  const Plan& plan = PlanTable<ForwardModel>::find(a.seq_q, a.seq_kv);
  if (plan.block_n == 32)
    launch<T, D, 32, 3, M>(a, plan.block_m);
  else
    launch<T, D, 64, 2, M>(a, plan.block_m);
}

}  // namespace
}  // namespace ak

int ak_attention_forward(const ak::AttentionArgs* a) {
  using namespace ak;
  bool matched = false;
  HalfTypes::pick(a->dtype, [&](auto type) {
    Choices<64, 128>::pick(a->head_dim, [&](auto dim) {
      matched = Choices<Mask::none, Mask::causal, Mask::window>::pick(a->mask, [&](auto mask) {
        launch_planned<TypeFor<decltype(type)>, decltype(dim)::value, decltype(mask)::value>(*a);
      });
    });
  });
  return finish(matched);
}
