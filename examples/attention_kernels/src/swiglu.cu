// Gated activations: y = f(gate) * x, with an fp8 output path that scales and tracks the absolute maximum.
#include "ak/activation.cuh"

namespace ak {
namespace {

template <class F, class In, class Out>
__global__ void gated_kernel(const ElementwiseArgs a, long long packs) {
  constexpr bool fp8 = sizeof(Out) == 1;
  const float scale = fp8 ? *a.scale : 1.0f;
  float top = 0.0f;
  for (long long i = blockIdx.x * static_cast<long long>(blockDim.x) + threadIdx.x; i < packs;
       i += static_cast<long long>(gridDim.x) * blockDim.x) {
    float x[4], gate[4];
    load(static_cast<const In*>(a.x) + i * 4, x);
    load(static_cast<const In*>(a.gate) + i * 4, gate);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      x[j] *= F::forward(gate[j]);
      top = fmaxf(top, fabsf(x[j]));
      if (fp8) x[j] = fminf(fmaxf(x[j] * scale, -Limits<Out>::max), Limits<Out>::max);
    }
    store(static_cast<Out*>(a.y) + i * 4, x);
  }
  if (fp8) {
    top = warp_max(top);
    if (threadIdx.x % 32 == 0) atomic_max(a.amax, top);
  }
}

}  // namespace
}  // namespace ak

/// heads selects the gate: 0 swiglu, 1 geglu.
int ak_swiglu(const ak::ElementwiseArgs* a) {
  using namespace ak;
  using Outputs = Choices<DType::f16, DType::bf16, DType::e4m3, DType::e5m2>;
  const long long packs = static_cast<long long>(a->rows) * a->cols / 4;
  const int blocks = blocks_for(packs, 256);
  bool matched = false;
  HalfTypes::pick(a->in, [&](auto in) {
    matched = Outputs::pick(a->out, [&](auto out) {
      using In = TypeFor<decltype(in)>;
      using Out = TypeFor<decltype(out)>;
      if (a->heads == 0)
        gated_kernel<Silu, In, Out><<<blocks, 256, 0, stream_of(a->stream)>>>(*a, packs);
      else
        gated_kernel<Gelu, In, Out><<<blocks, 256, 0, stream_of(a->stream)>>>(*a, packs);
    });
  });
  return finish(matched);
}
