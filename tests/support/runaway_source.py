"""An ordinary source of some hundred lines with a recursion of templates in it that no compiler comes to the end of.

Public reports of compilers that took all memory show this kind: lists of types, taken apart and put together again in
two ways at each step.
"""

from __future__ import annotations

STAGE = """
struct Stage{n} {{
  float gain, offset;
  int width, height;
  {both} float apply(float x) const {{
    float y = x * gain + offset;
    for (int k = 0; k < {n} + 2; ++k) {{
      y = y * 0.5f + x / (k + 1);
    }}
    return y < 0 ? 0.0f : y;
  }}
}};
{entry} void run_stage{n}(Stage{n} stage, const float *in, float *out, unsigned long n) {{
  for (unsigned long at = 0; at < n; ++at) {{
    out[at] = stage.apply(in[at]) + (in[at] > {n} ? 1.0f : 0.0f);
  }}
}}
"""
RECURSION = """
template <class... Ts> struct List {};
template <int Depth, class L> struct Subsets;
template <class... Ts> struct Subsets<0, List<Ts...>> {
  static constexpr unsigned long count = 1;
};
template <int Depth, class... Ts> struct Subsets<Depth, List<Ts...>> {
  static constexpr unsigned long count =
      Subsets<Depth - 1, List<Ts...>>::count + Subsets<Depth - 1, List<Ts..., int[Depth]>>::count;
};
inline unsigned long plans() { return Subsets<40, List<>>::count; }
"""


def runaway_source(*, cuda: bool = False, recursion: bool = True) -> str:
    """Some 340 lines; the recursion is in the middle, and used at the end."""
    both, entry = ("__host__ __device__", "__global__") if cuda else ("inline", "inline")
    stages = [STAGE.format(n=number, both=both, entry=entry) for number in range(20)]
    launch = "<<<1, 1>>>" if cuda else ""
    calls = [f"  run_stage{number}{launch}(Stage{number}{{1, 2, 640, 480}}, in, out, n);" for number in range(20)]
    use = "  out[0] = static_cast<float>(plans());" if recursion else ""
    body = "\n".join(["void all(const float *in, float *out, unsigned long n) {", *calls, use, "}", ""])
    return "".join([*stages[:12], RECURSION if recursion else "", *stages[12:], body])
