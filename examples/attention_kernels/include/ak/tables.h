// Rotary frequencies, computed by the compiler.
#pragma once

namespace ak {

template <int D>
struct FrequencyTable {
  float at[D / 2];
};

/// at[i] = 10000^(-2i/D), by repeated multiplication with the D/2-th root, itself found by Newton steps.
template <int D>
constexpr FrequencyTable<D> make_frequencies() {
  constexpr int n = D / 2;
  double root = 1.0;
  for (int step = 0; step < 200; ++step) {
    double power = 1.0;
    for (int i = 0; i < n - 1; ++i) power *= root;
    root -= (power * root - 1.0e-4) / (n * power);
  }
  FrequencyTable<D> table{};
  double value = 1.0;
  for (int i = 0; i < n; ++i, value *= root) table.at[i] = static_cast<float>(value);
  return table;
}

}  // namespace ak
