// Rotary position embedding: y = rotate(x, position). Pairs are either neighbours or
// the two halves of a head. Inverse frequencies come from a constant table built at compile time.
#include "ak/common.cuh"
#include "ak/tables.h"

namespace ak {
namespace {

template <int D>
__constant__ constexpr FrequencyTable<D> kFrequencies = make_frequencies<D>();

template <class T, int D, bool Interleaved>
__global__ void rope_kernel(const ElementwiseArgs a) {
  const int head = blockIdx.y, token = blockIdx.x, i = threadIdx.x;
  const long long at = (static_cast<long long>(token) * a.heads + head) * D;
  const int first = Interleaved ? 2 * i : i, second = Interleaved ? 2 * i + 1 : i + D / 2;
  float sine, cosine;
  sincosf(static_cast<float>(a.positions[token]) * kFrequencies<D>.at[i], &sine, &cosine);
  const T* x = static_cast<const T*>(a.x) + at;
  const float u = to_float(x[first]), v = to_float(x[second]);
  T* y = static_cast<T*>(a.y) + at;
  y[first] = from_float<T>(u * cosine - v * sine);
  y[second] = from_float<T>(u * sine + v * cosine);
}

}  // namespace
}  // namespace ak

/// cols = 1 rotates neighbouring pairs, 0 rotates halves; rows counts tokens.
int ak_rope(const ak::ElementwiseArgs* a) {
  using namespace ak;
  bool matched = false;
  FloatTypes::pick(a->in, [&](auto type) {
    Choices<64, 80, 96, 128, 256>::pick(a->head_dim, [&](auto dim) {
      matched = Bools::pick(a->cols == 1, [&](auto interleaved) {
        constexpr int D = decltype(dim)::value;
        rope_kernel<TypeFor<decltype(type)>, D, decltype(interleaved)::value>
            <<<dim3(a->rows, a->heads), D / 2, 0, stream_of(a->stream)>>>(*a);
      });
    });
  });
  return finish(matched);
}
