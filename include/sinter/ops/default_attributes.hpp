// The attributes of an operation with their default values, for code that takes any operation. It
// makes every attribute struct, so it is no part of sinter.hpp: the named builders do without.
#pragma once
#include "sinter/ops/op_table.hpp"

namespace sinter {
namespace detail {

template <std::size_t... I>
Attributes make_attributes(int index, std::index_sequence<I...>) {
  using Make = Attributes (*)();
  constexpr Make make[] = {[] { return Attributes(std::in_place_index<I>); }...};
  return make[index]();
}

}  // namespace detail

inline Attributes default_attributes(OpKind k) {
  return detail::make_attributes(info(k).attributes,
                                 std::make_index_sequence<std::variant_size_v<Attributes>>());
}

}  // namespace sinter
