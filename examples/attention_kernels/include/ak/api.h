// C interface of libattention_kernels: plain argument structs and entry points.
// Included by host-only units too, so it needs no CUDA header; streams travel as void*.
#pragma once
#include <cstdint>

#if defined(_WIN32)
#define AK_API extern "C" __declspec(dllexport)
#else
#define AK_API extern "C" __attribute__((visibility("default")))
#endif

namespace ak {

enum class DType : int { f32 = 0, f16 = 1, bf16 = 2, e4m3 = 3, e5m2 = 4 };
enum class Mask : int { none = 0, causal = 1, window = 2 };
enum class Status : int { ok = 0, unsupported = 1, launch_failed = 2 };

/// Tensors are [batch, heads, seq, head_dim], contiguous; lse is [batch, heads, seq_q].
struct AttentionArgs {
  const void *q, *k, *v;
  void* o;
  float* lse;
  const float* alibi;          // one slope a head, or null
  const int *cu_q, *cu_kv;     // varlen only: batch + 1 prefix sums of the lengths
  int batch, heads, kv_heads, seq_q, seq_kv, head_dim, window;
  float scale;
  DType dtype;
  Mask mask;
  void* stream;
};

struct AttentionGradArgs {
  AttentionArgs fwd;
  const void* d_o;
  void *dq, *dk, *dv;
  float* delta;                // scratch: [batch, heads, seq_q]
};

/// Keys and values live in pages of page_size tokens: [page, kv_heads, page_size, head_dim].
struct DecodeArgs {
  const void *q, *k_pages, *v_pages;
  void* o;
  float* partial;              // scratch: [splits, batch, heads, head_dim + 2]
  const int *page_table, *lengths;
  int batch, heads, kv_heads, head_dim, page_size, max_pages, max_length;
  float scale, k_scale, v_scale;
  DType dtype, kv_dtype;
  void* stream;
};

struct NormArgs {
  const void *x, *gamma, *beta, *dy;
  void *y, *dx;
  float *mean, *rstd, *dgamma, *dbeta;
  int rows, hidden;
  float eps;
  DType dtype;
  void* stream;
};

/// y[rows, cols] = f(x); scale and amax are used by the fp8 paths only.
struct ElementwiseArgs {
  const void *x, *gate;
  void* y;
  const float* scale;
  float* amax;
  const int* positions;
  int rows, cols, heads, head_dim;
  DType in, out;
  void* stream;
};

/// d[m, n] = epilogue(a[m, k] * b[n, k]^T)
struct GemmArgs {
  const void *a, *b, *bias, *residual;
  void* d;
  const float* out_scale;
  float* amax;
  int m, n, k, epilogue;
  DType in, out;
  void* stream;
};

}  // namespace ak

AK_API int ak_attention_forward(const ak::AttentionArgs*);
AK_API int ak_attention_varlen(const ak::AttentionArgs*);
AK_API int ak_attention_backward(const ak::AttentionGradArgs*);
AK_API int ak_attention_decode(const ak::DecodeArgs*);
AK_API int ak_kv_cache_append(const ak::DecodeArgs*, const void* k, const void* v);
AK_API int ak_softmax(const ak::ElementwiseArgs*);
AK_API int ak_layer_norm_forward(const ak::NormArgs*);
AK_API int ak_layer_norm_backward(const ak::NormArgs*);
AK_API int ak_rms_norm_forward(const ak::NormArgs*);
AK_API int ak_gelu(const ak::ElementwiseArgs*);
AK_API int ak_swiglu(const ak::ElementwiseArgs*);
AK_API int ak_rope(const ak::ElementwiseArgs*);
AK_API int ak_quantize_fp8(const ak::ElementwiseArgs*);
AK_API int ak_gemm(const ak::GemmArgs*);
AK_API int ak_plan_attention(int seq_q, int seq_kv, int head_dim, int* block_m, int* block_n, int* splits);
AK_API int ak_workspace_bytes(const char* kernel, int rows, int cols, std::int64_t* bytes);
AK_API int ak_reference_attention(const ak::AttentionArgs*);
AK_API int ak_kernel_count();
AK_API const char* ak_kernel_name(int index);
