// Which gradients a kernel of attention backward computes, and how those of keys leave it.
//
// A generated file defines ResultDK and ResultDV, and SumsDQ, as attention_backward.cuh says; or
// NotWanted in place of each that nobody reads, whose products are then left out; or, of a result
// that has another type than the operands or lies in memory as no box does,
//
//   struct Result     by_elements; put(args, coordinates, float): stores an element
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
// Leaves by TMA, or in lines.
template <class Result>
inline constexpr bool by_lines = is_wanted<Result> && !by_elements<Result>;

// ds, the gradients of scores, are for dQ, dK and dBias.
template <class BiasGradient, class SumsDQ, class ResultDK, class ResultDV>
struct Gradients {
  static constexpr bool dq = is_wanted<SumsDQ>, dk = is_wanted<ResultDK>, dv = is_wanted<ResultDV>,
                        ds = dq || dk || BiasGradient::wanted;
};

// Stores what a thread holds of a result of keys. key_of(i), element_of(i): of register i; those
// from `keys` and `elements` on do not exist. `along`: the coordinate of elements.
template <class Result, int along, class Args, class Coord, class Sums, class KeyOf,
          class ElementOf>
SINTER_DEVICE void put_elements(const Args& args, Coord c, Sums& sums, float scale, int keys,
                                int elements, const KeyOf& key_of, const ElementOf& element_of) {
  sums.each([&](int i, float x) {
    const int n = key_of(i), e = element_of(i);
    if (n >= keys || e >= elements) return;
    c.at[3] = n, c.at[along] = e;
    Result::put(args, c, x * scale);
  });
}

}  // namespace sinter::attention
