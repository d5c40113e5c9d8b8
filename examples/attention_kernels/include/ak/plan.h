// Compile-time launch plans: a cost model is searched once per size bucket by the compiler and the
// winners are kept in a read-only table, so a launch costs one table look-up.
//
// Lists are values: with() returns a longer copy and leaves the old list alone. That keeps the search
// free of hidden state, but a host compiler keeps every intermediate list of an evaluation: the units
// with large tables are the ones that need gigabytes in cc1plus.
#pragma once

namespace ak {

struct Plan {
  int block_m = 0, block_n = 0, stages = 0, splits = 1;
  float cost = 1e30f;
};

struct Problem {
  int rows, cols, head_dim;
};

template <int Capacity>
struct PlanList {
  Plan items[Capacity]{};
  int size = 0;

  constexpr PlanList with(const Plan& plan) const {
    PlanList longer = *this;
    longer.items[longer.size++] = plan;
    return longer;
  }
  constexpr const Plan& operator[](int i) const { return items[i]; }
};

constexpr int ceil_div(int a, int b) { return (a + b - 1) / b; }
constexpr int bucket_of(int value, int step, int buckets) {
  const int b = ceil_div(value, step) - 1;
  return b < 0 ? 0 : b >= buckets ? buckets - 1 : b;
}

/// Model supplies: candidates[] (block_m, block_n, stages, splits) and cost(Problem, Plan).
template <class Model>
constexpr Plan cheapest(Problem problem) {
  Plan best{};
  for (Plan candidate : Model::candidates) {
    candidate.cost = Model::cost(problem, candidate);
    if (candidate.cost < best.cost) best = candidate;
  }
  return best;
}

template <class Model>
struct PlanTable {
  static constexpr int size = Model::row_buckets * Model::col_buckets;

  static constexpr PlanList<size> build() {
    PlanList<size> list{};
    for (int r = 1; r <= Model::row_buckets; ++r)
      for (int c = 1; c <= Model::col_buckets; ++c)
        list = list.with(cheapest<Model>({r * Model::row_step, c * Model::col_step, Model::head_dim}));
    return list;
  }

  static const Plan& find(int rows, int cols) {
    static constexpr PlanList<size> plans = build();
    const int r = bucket_of(rows, Model::row_step, Model::row_buckets);
    const int c = bucket_of(cols, Model::col_step, Model::col_buckets);
    return plans.items[r * Model::col_buckets + c];
  }
};

/// Waves of thread blocks times the work of one block; splits pay for their combine pass.
constexpr float wave_cost(Problem p, Plan plan, float per_tile, float per_combine, int processors = 132) {
  const int blocks = ceil_div(p.rows, plan.block_m) * plan.splits;
  const int tiles = ceil_div(ceil_div(p.cols, plan.splits), plan.block_n);
  const float pipeline = 1.0f + 0.5f / static_cast<float>(plan.stages);
  const float work = static_cast<float>(ceil_div(blocks, processors) * tiles) * per_tile * pipeline;
  return work * static_cast<float>(plan.block_m * plan.block_n) / 4096.0f +
         (plan.splits > 1 ? per_combine * static_cast<float>(plan.splits * p.rows) / 64.0f : 0.0f);
}

}  // namespace ak
