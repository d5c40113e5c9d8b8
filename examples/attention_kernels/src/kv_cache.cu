// Appends the newest token's keys and values to the paged cache, casting to the cache's type.
#include "ak/common.cuh"

namespace ak {
namespace {

template <class T, class C>
__global__ void kv_cache_append_kernel(const DecodeArgs a, const T* k, const T* v) {
  const int head = blockIdx.x, batch = blockIdx.y, token = a.lengths[batch] - 1;
  const long long page = a.page_table[batch * a.max_pages + token / a.page_size];
  const long long from = (static_cast<long long>(batch) * a.kv_heads + head) * a.head_dim;
  const long long to = ((page * a.kv_heads + head) * a.page_size + token % a.page_size) * a.head_dim;
  C* k_pages = static_cast<C*>(const_cast<void*>(a.k_pages)) + to;
  C* v_pages = static_cast<C*>(const_cast<void*>(a.v_pages)) + to;
  for (int d = threadIdx.x; d < a.head_dim; d += blockDim.x) {
    const float limit = Limits<C>::max;
    k_pages[d] = from_float<C>(fminf(fmaxf(to_float(k[from + d]) / a.k_scale, -limit), limit));
    v_pages[d] = from_float<C>(fminf(fmaxf(to_float(v[from + d]) / a.v_scale, -limit), limit));
  }
}

}  // namespace
}  // namespace ak

int ak_kv_cache_append(const ak::DecodeArgs* a, const void* k, const void* v) {
  using namespace ak;
  using CacheTypes = Choices<DType::f16, DType::bf16, DType::e4m3, DType::e5m2>;
  bool matched = false;
  HalfTypes::pick(a->dtype, [&](auto type) {
    matched = CacheTypes::pick(a->kv_dtype, [&](auto cache) {
      using T = TypeFor<decltype(type)>;
      kv_cache_append_kernel<T, TypeFor<decltype(cache)>><<<dim3(a->kv_heads, a->batch), 64, 0, stream_of(a->stream)>>>(
          *a, static_cast<const T*>(k), static_cast<const T*>(v));
    });
  });
  return finish(matched);
}
