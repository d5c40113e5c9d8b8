// Host-side planner: answers "how would attention be launched" for any size without touching a device. It
// holds one plan table a head size, the largest of them over 46 x 46 buckets of sequence lengths.
#include "ak/api.h"
#include "ak/dispatch.h"
#include "ak/plan.h"

namespace ak {
namespace {

constexpr int kSharedBytes = 227 * 1024;

/// Tiles that do not fit shared memory cost too much to be chosen.
template <int D, int Buckets>
struct AttentionModel {
  static constexpr int row_buckets = Buckets, col_buckets = Buckets, row_step = 192, col_step = 384, head_dim = D;
  static constexpr Plan candidates[] = {{16, 64, 2, 1}, {32, 64, 2, 1}, {64, 64, 3, 1}, {16, 64, 2, 4}};
  static constexpr float cost(Problem p, Plan plan) {
    const int bytes = plan.stages * plan.block_n * D * 4 + plan.block_m * D * 4;
    return bytes > kSharedBytes ? 1e29f : wave_cost(p, plan, static_cast<float>(D) / 64.0f, 2.0f);
  }
};

template <int D>
using ModelFor = AttentionModel<D, D == 128 ? 46 : D == 96 ? 24 : 16>;

}  // namespace
}  // namespace ak

int ak_plan_attention(int seq_q, int seq_kv, int head_dim, int* block_m, int* block_n, int* splits) {
  using namespace ak;
  const bool matched = HeadDims::pick(head_dim, [&](auto dim) {
    const Plan& plan = PlanTable<ModelFor<decltype(dim)::value>>::find(seq_q, seq_kv);
    *block_m = plan.block_m;
    *block_n = plan.block_n;
    *splits = plan.splits;
  });
  return static_cast<int>(matched ? Status::ok : Status::unsupported);
}
