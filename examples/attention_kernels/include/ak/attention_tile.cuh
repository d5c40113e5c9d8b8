// The forward attention loop shared by the dense and the variable-length kernels: online softmax over
// tiles of keys that arrive through a ring of asynchronous copies. A warp owns four query rows; for the
// scores a lane owns a key, for the output it owns every 32nd column.
#pragma once
#include <cuda_pipeline_primitives.h>

#include "ak/layout.cuh"

namespace ak {

constexpr int kRowsPerWarp = 4;

template <class T, int D, int BlockN, int Stages>
constexpr int attention_smem_bytes(int block_m) {
  return 2 * ring_bytes<T, D, BlockN, Stages> + block_m * D * static_cast<int>(sizeof(float));
}

struct RowState {
  float max, sum;
};

template <class R, class T, int D, int BlockN>
__device__ __forceinline__ void copy_tile(char* ring, int stage, const T* src, int first, int limit) {
  constexpr int per_row = D / 8;
  for (int i = threadIdx.x; i < BlockN * per_row; i += blockDim.x) {
    const int r = i / per_row, c = i % per_row * 8;
    T* dst = R::row(ring, stage, r) + c;
    if (first + r < limit)
      __pipeline_memcpy_async(dst, src + static_cast<long long>(first + r) * D + c, 16);
    else
      *reinterpret_cast<uint4*>(dst) = make_uint4(0, 0, 0, 0);
  }
}

template <Mask M>
__device__ __forceinline__ bool visible(int row, int col, int rows, int cols, int window) {
  const int diagonal = row + cols - rows;
  if (M == Mask::none) return col < cols;
  if (M == Mask::causal) return col < cols && col <= diagonal;
  return col < cols && col <= diagonal && col > diagonal - window;
}

/// One sequence and head; q, k, v, o and lse point at its first row. first_row is the block's.
template <class T, int D, int BlockN, int Stages, Mask M>
__device__ void attend(const AttentionArgs& a, char* smem, const T* q, const T* k, const T* v, T* o,
                       float* lse, int first_row, int rows, int cols, float slope) {
  using Keys = Ring<T, D, BlockN, Stages, Role::key>;
  using Values = Ring<T, D, BlockN, Stages, Role::value>;
  constexpr int columns = D / 32;
  constexpr float log2e = 1.44269504f;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int block_m = blockDim.x / 32 * kRowsPerWarp;
  char* k_ring = smem;
  char* v_ring = smem + ring_bytes<T, D, BlockN, Stages>;
  float* q_tile = reinterpret_cast<float*>(v_ring + ring_bytes<T, D, BlockN, Stages>);

  for (int i = threadIdx.x; i < block_m * D; i += blockDim.x) {
    const int r = first_row + i / D;
    q_tile[i] = r < rows ? to_float(q[static_cast<long long>(r) * D + i % D]) * a.scale * log2e : 0.0f;
  }
  const int last_row = min(first_row + block_m, rows) - 1;
  const int end = M == Mask::none ? cols : max(0, min(cols, last_row + cols - rows + 1));
  const int begin = M == Mask::window ? max(0, first_row + cols - rows - a.window + 1) / BlockN * BlockN : 0;
  const int tiles = end > begin ? (end - begin + BlockN - 1) / BlockN : 0;

  for (int t = 0; t < Stages - 1; ++t) {
    if (t < tiles) {
      copy_tile<Keys, T, D, BlockN>(k_ring, t, k, begin + t * BlockN, cols);
      copy_tile<Values, T, D, BlockN>(v_ring, t, v, begin + t * BlockN, cols);
    }
    __pipeline_commit();
  }

  RowState state[kRowsPerWarp];
  float acc[kRowsPerWarp][columns] = {};
#pragma unroll
  for (int r = 0; r < kRowsPerWarp; ++r) state[r] = {-1.0e30f, 0.0f};

#pragma unroll 1
  for (int t = 0; t < tiles; ++t) {
    const int next = t + Stages - 1;
    if (next < tiles) {
      copy_tile<Keys, T, D, BlockN>(k_ring, next % Stages, k, begin + next * BlockN, cols);
      copy_tile<Values, T, D, BlockN>(v_ring, next % Stages, v, begin + next * BlockN, cols);
    }
    __pipeline_commit();
    __pipeline_wait_prior(Stages - 1);
    __syncthreads();
#pragma unroll 1
    for (int sub = 0; sub < BlockN; sub += 32) {
      float s[kRowsPerWarp] = {};
      const T* key = Keys::row(k_ring, t % Stages, sub + lane);
#pragma unroll 1
      for (int c = 0; c < D; c += 8) {
        float kf[8];
        load(key + c, kf);
#pragma unroll
        for (int r = 0; r < kRowsPerWarp; ++r)
#pragma unroll
          for (int i = 0; i < 8; ++i) s[r] += q_tile[(warp * kRowsPerWarp + r) * D + c + i] * kf[i];
      }
      const int col = begin + t * BlockN + sub + lane;
#pragma unroll
      for (int r = 0; r < kRowsPerWarp; ++r) {
        const int row = first_row + warp * kRowsPerWarp + r;
        s[r] += slope * log2e * static_cast<float>(col - row - cols + rows);
        const bool on = visible<M>(row, col, rows, cols, a.window);
        const float peak = fmaxf(state[r].max, warp_max(on ? s[r] : -1.0e30f));
        const float shrink = exp2f(state[r].max - peak);
        s[r] = on ? exp2f(s[r] - peak) : 0.0f;
        state[r] = {peak, state[r].sum * shrink + warp_sum(s[r])};
#pragma unroll
        for (int c = 0; c < columns; ++c) acc[r][c] *= shrink;
      }
#pragma unroll 1
      for (int j = 0; j < 32; ++j) {
        const T* value = Values::row(v_ring, t % Stages, sub + j);
#pragma unroll
        for (int c = 0; c < columns; ++c) {
          const float x = to_float(value[lane + 32 * c]);
#pragma unroll
          for (int r = 0; r < kRowsPerWarp; ++r) acc[r][c] += __shfl_sync(0xffffffffu, s[r], j) * x;
        }
      }
    }
    __syncthreads();
  }

#pragma unroll
  for (int r = 0; r < kRowsPerWarp; ++r) {
    const int row = first_row + warp * kRowsPerWarp + r;
    if (row >= rows) continue;
    const float inverse = state[r].sum > 0.0f ? 1.0f / state[r].sum : 0.0f;
#pragma unroll
    for (int c = 0; c < columns; ++c)
      o[static_cast<long long>(row) * D + lane + 32 * c] = from_float<T>(acc[r][c] * inverse);
    if (lse != nullptr && lane == 0) lse[row] = state[r].max / log2e + logf(state[r].sum);
  }
}

}  // namespace ak
