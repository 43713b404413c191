// Which gradients a kernel of attention backward computes, and how those of keys leave it.
//
// A generated file defines ResultDK and ResultDV, and SumsDQ, as attention_backward.cuh says; or
// NotWanted in place of each that nobody reads, whose products are then left out; or, of a result
// that has another type than the operands or lies in memory as no box does,
//
//   struct Result     by_elements; put(args, coordinates, float): stores an element
//
// Where several CTAs walk over parts of the queries (Config::parts), each stores sums of f32, as if
// they were those of further batch entries, which another kernel adds up in the order of the parts.
// Results then also have float* line(args, coordinates), where threads hold neighbouring elements:
// a key's, at multiples of 8 bytes, of an even number of elements.
#pragma once
#include "sinter/device/core/device.cuh"

namespace sinter::attention {

struct NotWanted {};

template <class Result>
inline constexpr bool is_wanted = !is_same<Result, NotWanted>;
template <class Result>
inline constexpr bool by_elements = requires {
  Result::by_elements;
};
// Whether SumsDQ is dQ itself: its `factor` times what one tile of keys sums, which is all of it.
template <class SumsDQ>
inline constexpr bool stores_dq = requires {
  SumsDQ::factor;
};
// Leaves by TMA, or in lines.
template <class Result>
inline constexpr bool by_lines = is_wanted<Result> && !by_elements<Result>;

// ds, the gradients of scores, are for dQ, dK and dBias.
template <class BiasGradient, class SumsDQ, class ResultDK, class ResultDV>
struct Gradients {
  using ResultDQ = SumsDQ;
  static constexpr bool dq = is_wanted<SumsDQ>, dk = is_wanted<ResultDK>, dv = is_wanted<ResultDV>,
                        ds = dq || dk || BiasGradient::wanted;
};

// Where a part's results go, from where those of the whole would.
template <class S>
SINTER_DEVICE typename S::Coord place_of_part(typename S::Coord c, int part) {
  if constexpr (S::parts > 1) c.at[0] += part * S::entries;
  return c;
}

// Stores what a thread holds of a result of keys. key_of(i), element_of(i): of register i; those
// from `keys` and `elements` on do not exist. `along`: the coordinate of elements.
template <class Result, int along, class Args, class Coord, class Sums, class KeyOf,
          class ElementOf>
SINTER_DEVICE void put_elements(const Args& args, Coord c, Sums& sums, float scale, int keys,
                                int elements, const KeyOf& key_of, const ElementOf& element_of) {
  constexpr bool in_pairs = requires { Result::line(args, c); };
  sums.each([&](int i, float x) {
    const int n = key_of(i), e = element_of(i);
    if (n >= keys || e >= elements || (in_pairs && i % 2 != 0)) return;
    c.at[3] = n;
    if constexpr (in_pairs) {
      *reinterpret_cast<float2*>(Result::line(args, c) + e) =
          float2{x * scale, sums.at[i + 1] * scale};
    } else {
      c.at[along] = e;
      Result::put(args, c, x * scale);
    }
  });
}

}  // namespace sinter::attention
