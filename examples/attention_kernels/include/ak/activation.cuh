// Activation functions as types, so that kernels can be instantiated with them.
#pragma once
#include "ak/common.cuh"

namespace ak {

struct Gelu {  // tanh form
  static __device__ __forceinline__ float forward(float x) {
    return 0.5f * x * (1.0f + tanhf(0.7978845608f * (x + 0.044715f * x * x * x)));
  }
};
struct GeluErf {
  static __device__ __forceinline__ float forward(float x) { return 0.5f * x * (1.0f + erff(x * 0.7071067812f)); }
};
struct QuickGelu {
  static __device__ __forceinline__ float forward(float x) { return x / (1.0f + __expf(-1.702f * x)); }
};
struct Silu {
  static __device__ __forceinline__ float forward(float x) { return x / (1.0f + __expf(-x)); }
};
struct Relu {
  static __device__ __forceinline__ float forward(float x) { return fmaxf(x, 0.0f); }
};
struct SquaredRelu {
  static __device__ __forceinline__ float forward(float x) { return Relu::forward(x) * Relu::forward(x); }
};

}  // namespace ak
