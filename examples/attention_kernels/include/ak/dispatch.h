// Turns run-time values into template arguments: a call is tried against lists of allowed values.
#pragma once
#include <type_traits>

namespace ak {

template <auto V>
using Const = std::integral_constant<decltype(V), V>;

template <auto... V>
struct Choices {
  /// Calls f(Const<V>{}) for the V equal to value; false if value is not on the list.
  template <class X, class F>
  static bool pick(X value, F&& f) {
    return ((value == V ? (f(Const<V>{}), true) : false) || ...);
  }
};

using HeadDims = Choices<64, 96, 128>;
using Bools = Choices<false, true>;

}  // namespace ak
