// Shared-memory rings for tiles of keys and values. On sm_90 padding and skew are searched at compile time:
// every candidate is laid out chunk by chunk (16 bytes each), its bank conflicts are counted on that map,
// and the cheapest is taken. Elsewhere a row carries a fixed 16 bytes of padding.
//
// The front end keeps the map of every candidate: this is what makes cicc need gigabytes for sm_90 in the
// units that use rings.
#pragma once
#include <utility>

#include "ak/common.cuh"

namespace ak {

enum class Role { key, value };

/// Candidate c pads rows by 16 * (c % 9) bytes and skews stages by 16 * (c / 9).
constexpr int kCandidates = 81, kMaxPad = 128, kMaxSkew = 128;

constexpr int align_to(int x, int a) { return (x + a - 1) / a * a; }

/// Bytes to reserve for one ring, whatever candidate is chosen.
template <class T, int D, int BlockN, int Stages>
constexpr int ring_bytes =
    Stages * align_to(BlockN * (D * static_cast<int>(sizeof(T)) + kMaxPad) + kMaxSkew, 128);

/// Where one chunk of 16 bytes lies.
struct Chunk {
  int byte;
  short bank, stage, row, column;
};

template <int Count>
struct ChunkMap {
  Chunk at[Count];
};

template <class T, int D, int BlockN, int Stages, int Candidate>
struct RingMap {
  static constexpr int columns = D * static_cast<int>(sizeof(T)) / 16;
  static constexpr int pitch = D * static_cast<int>(sizeof(T)) + Candidate % 9 * 16;
  static constexpr int stage_bytes = align_to(BlockN * pitch, 128) + Candidate / 9 * 16;
  static constexpr int count = Stages * BlockN * columns;

  static constexpr ChunkMap<count> build() {
    ChunkMap<count> map{};
    int i = 0;
    for (int stage = 0; stage < Stages; ++stage)
      for (int row = 0; row < BlockN; ++row)
        for (int column = 0; column < columns; ++column) {
          const int byte = stage * stage_bytes + row * pitch + column * 16;
          map.at[i++] = {byte, short(byte / 16 % 8), short(stage), short(row), short(column)};
        }
    return map;
  }
  static constexpr ChunkMap<count> map = build();

  /// Eight lanes read at once: keys a column of eight rows, values eight columns of a row.
  static constexpr int conflicts(Role role) {
    const int step = role == Role::key ? columns : 1;
    int total = 0;
    for (int stage = 0; stage < Stages; ++stage) {
      unsigned banks = 0;
      for (int lane = 0; lane < 8; ++lane) {
        const unsigned bank = 1u << map.at[stage * BlockN * columns + lane * step].bank;
        total += (banks & bank) != 0;
        banks |= bank;
      }
    }
    return total;
  }
};

template <class Map, Role R>
constexpr int map_cost = 65536 * Map::conflicts(R) + Map::stage_bytes;

template <Role R, class Best, class...>
struct CheapestMap {
  using type = Best;
};
template <Role R, class Best, class Next, class... More>
struct CheapestMap<R, Best, Next, More...> {
  static constexpr bool better = map_cost<Next, R> < map_cost<Best, R>;
  using type = typename CheapestMap<R, std::conditional_t<better, Next, Best>, More...>::type;
};

/// How a kernel walks its ring.
template <class T, int D, int BlockN, int Stages, Role R>
struct Ring {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ == 900
  template <class>
  struct Search;
  template <int... C>
  struct Search<std::integer_sequence<int, C...>> {
    using type = typename CheapestMap<R, RingMap<T, D, BlockN, Stages, C>...>::type;
  };
  using Chosen = typename Search<std::make_integer_sequence<int, kCandidates>>::type;
  static constexpr int pitch = Chosen::pitch, stage_bytes = Chosen::stage_bytes;
#else
  static constexpr int pitch = D * static_cast<int>(sizeof(T)) + 16;
  static constexpr int stage_bytes = align_to(BlockN * pitch, 128);
#endif
  static_assert(Stages * stage_bytes <= ring_bytes<T, D, BlockN, Stages>, "the host reserves too little");
  static_assert(pitch % 16 == 0 && stage_bytes % 16 == 0, "rows must keep 16-byte copies aligned");

  static __device__ __forceinline__ T* row(char* base, int stage, int r) {
    return reinterpret_cast<T*>(base + stage * stage_bytes + r * pitch);
  }
};

}  // namespace ak
