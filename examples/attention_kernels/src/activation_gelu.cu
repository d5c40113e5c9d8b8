// Pointwise activations (three forms of gelu, relu and its square) for every pair of float types; the
// grid is sized by a small plan table.
#include "ak/activation.cuh"
#include "ak/plan.h"

namespace ak {
namespace {

/// block_m is how many thread blocks share the matrix, in units of 64.
struct PointwiseModel {
  static constexpr int row_buckets = 32, col_buckets = 28, row_step = 256, col_step = 512, head_dim = 0;
  static constexpr Plan candidates[] = {{2, 256, 1}, {8, 256, 1}, {32, 256, 1}};
  static constexpr float cost(Problem p, Plan plan) {
    return wave_cost(p, plan, 1.0f, 0.0f) + static_cast<float>(plan.block_m);
  }
};

template <class F, class In, class Out>
__global__ void activation_kernel(const ElementwiseArgs a, long long packs) {
  for (long long i = blockIdx.x * static_cast<long long>(blockDim.x) + threadIdx.x; i < packs;
       i += static_cast<long long>(gridDim.x) * blockDim.x) {
    float x[4];
    load(static_cast<const In*>(a.x) + i * 4, x);
#pragma unroll
    for (float& v : x) v = F::forward(v);
    store(static_cast<Out*>(a.y) + i * 4, x);
  }
}

template <class F>
int activate(const ElementwiseArgs& a) {
  const long long packs = static_cast<long long>(a.rows) * a.cols / 4;
  const int blocks = PlanTable<PointwiseModel>::find(a.rows, a.cols).block_m * 64;
  bool matched = false;
  FloatTypes::pick(a.in, [&](auto in) {
    matched = HalfTypes::pick(a.out, [&](auto out) {
      activation_kernel<F, TypeFor<decltype(in)>, TypeFor<decltype(out)>>
          <<<blocks, 256, 0, stream_of(a.stream)>>>(a, packs);
    });
  });
  return finish(matched);
}

}  // namespace
}  // namespace ak

/// heads selects the function: 0 gelu (tanh), 1 gelu (erf), 2 quick gelu, 3 relu, 4 squared relu.
int ak_gelu(const ak::ElementwiseArgs* a) {
  switch (a->heads) {
    case 0: return ak::activate<ak::Gelu>(*a);
    case 1: return ak::activate<ak::GeluErf>(*a);
    case 2: return ak::activate<ak::QuickGelu>(*a);
    case 3: return ak::activate<ak::Relu>(*a);
    case 4: return ak::activate<ak::SquaredRelu>(*a);
    default: return static_cast<int>(ak::Status::unsupported);
  }
}
