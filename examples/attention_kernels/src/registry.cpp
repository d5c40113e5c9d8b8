// Registry of entry points: their names, and how much scratch memory each needs. A kernel is a type with a
// name and a workspace rule; the lists a caller sees are generated from one std::tuple of those types, and
// a pipeline of two kernels is sized by visiting a pair of variants.
#include <array>
#include <cstdint>
#include <cstring>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>

#include "ak/api.h"

namespace ak {
namespace {

struct Size {
  std::int64_t rows, cols;
};

struct NoScratch {
  static constexpr std::int64_t bytes(Size) { return 0; }
};
struct RowScratch {  // two floats a row
  static constexpr std::int64_t bytes(Size s) { return s.rows * 8; }
};
struct SplitScratch {  // a float for each element of eight splits, and two a row
  static constexpr std::int64_t bytes(Size s) { return 8 * s.rows * (s.cols + 2) * 4; }
};
struct ColumnScratch {  // gradients of gamma and beta
  static constexpr std::int64_t bytes(Size s) { return s.cols * 8; }
};

template <class Rule>
struct Kernel : Rule {
  Size size{};
  std::int64_t need() const { return Rule::bytes(size); }
};

struct AttentionForward : Kernel<NoScratch> { static constexpr const char* name = "ak_attention_forward"; };
struct AttentionVarlen : Kernel<NoScratch> { static constexpr const char* name = "ak_attention_varlen"; };
struct AttentionBackward : Kernel<RowScratch> { static constexpr const char* name = "ak_attention_backward"; };
struct AttentionDecode : Kernel<SplitScratch> { static constexpr const char* name = "ak_attention_decode"; };
struct KvCacheAppend : Kernel<NoScratch> { static constexpr const char* name = "ak_kv_cache_append"; };
struct Softmax : Kernel<NoScratch> { static constexpr const char* name = "ak_softmax"; };
struct LayerNormForward : Kernel<RowScratch> { static constexpr const char* name = "ak_layer_norm_forward"; };
struct LayerNormBackward : Kernel<ColumnScratch> { static constexpr const char* name = "ak_layer_norm_backward"; };
struct RmsNormForward : Kernel<RowScratch> { static constexpr const char* name = "ak_rms_norm_forward"; };
struct GeluKernel : Kernel<NoScratch> { static constexpr const char* name = "ak_gelu"; };
struct Swiglu : Kernel<NoScratch> { static constexpr const char* name = "ak_swiglu"; };
struct Rope : Kernel<NoScratch> { static constexpr const char* name = "ak_rope"; };
struct QuantizeFp8 : Kernel<NoScratch> { static constexpr const char* name = "ak_quantize_fp8"; };
struct Gemm : Kernel<NoScratch> { static constexpr const char* name = "ak_gemm"; };

using Kernels = std::tuple<AttentionForward, AttentionVarlen, AttentionBackward, AttentionDecode, KvCacheAppend,
                           Softmax, LayerNormForward, LayerNormBackward, RmsNormForward, GeluKernel, Swiglu, Rope,
                           QuantizeFp8, Gemm>;
constexpr std::size_t kCount = std::tuple_size_v<Kernels>;
using Indices = std::make_index_sequence<kCount>;

template <class>
struct Tables;
template <std::size_t... I>
struct Tables<std::index_sequence<I...>> {
  using Any = std::variant<std::monostate, std::tuple_element_t<I, Kernels>...>;
  static constexpr std::array<const char*, kCount> names = {std::tuple_element_t<I, Kernels>::name...};

  static Any find(const char* name, std::size_t length, Size size) {
    Any any;
    (void)((std::strlen(names[I]) == length && std::strncmp(names[I], name, length) == 0
                ? (any.template emplace<I + 1>().size = size, true) : false) || ...);
    return any;
  }
};
using All = Tables<Indices>;

/// Two kernels in sequence share scratch, unless both keep statistics of the same rows.
struct PipelineNeed {
  template <class A, class B>
  std::int64_t operator()(const A& a, const B& b) const {
    if constexpr (std::is_same_v<A, std::monostate>) return -1;
    else if constexpr (std::is_same_v<B, std::monostate>) return a.need();
    else if constexpr (std::is_base_of_v<RowScratch, A> && std::is_base_of_v<RowScratch, B>) return a.need() + b.need();
    else return a.need() > b.need() ? a.need() : b.need();
  }
};

}  // namespace
}  // namespace ak

/// kernel is one name, or two joined by '+'.
int ak_workspace_bytes(const char* kernel, int rows, int cols, std::int64_t* bytes) {
  using namespace ak;
  const Size size{rows, cols};
  const char* plus = std::strchr(kernel, '+');
  const std::size_t length = plus != nullptr ? static_cast<std::size_t>(plus - kernel) : std::strlen(kernel);
  const auto first = All::find(kernel, length, size);
  const auto second = plus != nullptr ? All::find(plus + 1, std::strlen(plus + 1), size) : All::Any{};
  *bytes = std::visit(PipelineNeed{}, first, second);
  return static_cast<int>(*bytes >= 0 ? Status::ok : Status::unsupported);
}

int ak_kernel_count() { return static_cast<int>(ak::kCount); }
const char* ak_kernel_name(int index) {
  return index >= 0 && index < ak_kernel_count() ? ak::All::names[static_cast<std::size_t>(index)] : nullptr;
}
