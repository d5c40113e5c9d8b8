// Attention on the host, in float, to compare kernels with. One instantiation for every element type, head
// size, mask and key block, so that inner loops have fixed lengths and vectorise.
#include <cmath>
#include <cstring>
#include <vector>

#include "ak/api.h"
#include "ak/dispatch.h"

namespace ak {
namespace {

template <DType> struct Element;
template <> struct Element<DType::f32> {
  using type = float;
  static float get(float x) { return x; }
  static float put(float x) { return x; }
};
template <> struct Element<DType::bf16> {
  using type = std::uint16_t;
  static float get(std::uint16_t x) {
    const std::uint32_t bits = static_cast<std::uint32_t>(x) << 16;
    float out;
    std::memcpy(&out, &bits, sizeof out);
    return out;
  }
  static std::uint16_t put(float x) {
    std::uint32_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    return static_cast<std::uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
  }
};

template <DType Type, int D, Mask M, int Block>
void attention(const AttentionArgs& a) {
  using E = Element<Type>;
  using T = typename E::type;
  float q[D], acc[D], s[Block];
  std::vector<float> keys(static_cast<std::size_t>(Block) * D), values(keys.size());
  for (std::int64_t bh = 0; bh < static_cast<std::int64_t>(a.batch) * a.heads; ++bh) {
    const int head = static_cast<int>(bh % a.heads);
    const std::int64_t kv = (bh / a.heads * a.kv_heads + head / (a.heads / a.kv_heads)) * a.seq_kv;
    for (int row = 0; row < a.seq_q; ++row) {
      const std::int64_t at = (bh * a.seq_q + row) * D;
      for (int d = 0; d < D; ++d) q[d] = E::get(static_cast<const T*>(a.q)[at + d]) * a.scale;
      for (float& x : acc) x = 0.0f;
      float peak = -1.0e30f, sum = 0.0f;
      const int diagonal = row + a.seq_kv - a.seq_q;
      for (int first = 0; first < a.seq_kv; first += Block) {
        const int count = a.seq_kv - first < Block ? a.seq_kv - first : Block;
        for (int i = 0; i < count * D; ++i) {
          keys[static_cast<std::size_t>(i)] = E::get(static_cast<const T*>(a.k)[(kv + first) * D + i]);
          values[static_cast<std::size_t>(i)] = E::get(static_cast<const T*>(a.v)[(kv + first) * D + i]);
        }
        float top = peak;
        for (int j = 0; j < count; ++j) {
          const int col = first + j;
          const bool on = M == Mask::none || (col <= diagonal && (M == Mask::causal || col > diagonal - a.window));
          s[j] = a.alibi == nullptr ? 0.0f : a.alibi[head] * static_cast<float>(col - diagonal);
          for (int d = 0; d < D; ++d) s[j] += q[d] * keys[static_cast<std::size_t>(j * D + d)];
          if (!on) s[j] = -2.0e30f;
          if (s[j] > top) top = s[j];
        }
        const float shrink = std::exp(peak - top);
        sum *= shrink;
        for (float& x : acc) x *= shrink;
        for (int j = 0; j < count; ++j) {
          const float p = s[j] > -1.0e30f ? std::exp(s[j] - top) : 0.0f;
          sum += p;
          for (int d = 0; d < D; ++d) acc[d] += p * values[static_cast<std::size_t>(j * D + d)];
        }
        peak = top;
      }
      for (int d = 0; d < D; ++d) static_cast<T*>(a.o)[at + d] = E::put(sum > 0.0f ? acc[d] / sum : 0.0f);
      if (a.lse != nullptr) a.lse[bh * a.seq_q + row] = peak + std::log(sum);
    }
  }
}

}  // namespace
}  // namespace ak

int ak_reference_attention(const ak::AttentionArgs* a) {
  using namespace ak;
  bool matched = false;
  Choices<DType::f32, DType::bf16>::pick(a->dtype, [&](auto type) {
    HeadDims::pick(a->head_dim, [&](auto dim) {
      Choices<Mask::none, Mask::causal, Mask::window>::pick(a->mask, [&](auto mask) {
        matched = Bools::pick(a->seq_kv >= 1024, [&](auto big) {
          constexpr int block = decltype(big)::value ? 64 : 16;
          attention<decltype(type)::value, decltype(dim)::value, decltype(mask)::value, block>(*a);
        });
      });
    });
  });
  return static_cast<int>(matched ? Status::ok : Status::unsupported);
}
