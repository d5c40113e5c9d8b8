// Scaled quantisation to and from fp8, with the absolute maximum of the input tracked on the way.
#include "ak/common.cuh"

namespace ak {
namespace {

template <class In, class Out>
__global__ void quantize_kernel(const ElementwiseArgs a, long long packs) {
  const float scale = *a.scale;
  float top = 0.0f;
  for (long long i = blockIdx.x * static_cast<long long>(blockDim.x) + threadIdx.x; i < packs;
       i += static_cast<long long>(gridDim.x) * blockDim.x) {
    float x[8];
    load(static_cast<const In*>(a.x) + i * 8, x);
#pragma unroll
    for (float& v : x) {
      top = fmaxf(top, fabsf(v));
      v = fminf(fmaxf(v * scale, -Limits<Out>::max), Limits<Out>::max);
    }
    store(static_cast<Out*>(a.y) + i * 8, x);
  }
  top = warp_max(top);
  if (a.amax != nullptr && threadIdx.x % 32 == 0) atomic_max(a.amax, top);
}

template <class In, class Out>
void launch(const ElementwiseArgs& a) {
  const long long packs = static_cast<long long>(a.rows) * a.cols / 8;
  quantize_kernel<In, Out><<<blocks_for(packs, 256), 256, 0, stream_of(a.stream)>>>(a, packs);
}

}  // namespace
}  // namespace ak

/// Quantises when out is fp8 (scale multiplies), restores when in is fp8 (pass the inverse scale).
int ak_quantize_fp8(const ak::ElementwiseArgs* a) {
  using namespace ak;
  bool matched = false;
  FloatTypes::pick(a->in, [&](auto in) {
    matched = Fp8Types::pick(a->out, [&](auto out) { launch<TypeFor<decltype(in)>, TypeFor<decltype(out)>>(*a); });
  });
  Fp8Types::pick(a->in, [&](auto in) {
    matched = FloatTypes::pick(a->out, [&](auto out) { launch<TypeFor<decltype(in)>, TypeFor<decltype(out)>>(*a); });
  });
  return finish(matched);
}
