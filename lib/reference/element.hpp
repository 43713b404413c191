// Stored numbers as doubles and back, for every storage type, with GRAPH_JSON.md's conversion
// rules.
#pragma once
#include <cstddef>
#include <cstdint>

#include "sinter/base/data_type.hpp"

namespace sinter {

double load_element(DataType type, const void* base, std::int64_t index);
// Rounds to nearest even (f8e8m0: up to the next power of two, NaN below zero); f32, f16, bf16
// overflow to infinity, f8 and f4 saturate, NaN stays NaN where the type has one; integers: nearest
// even, saturating; bool: not zero.
void store_element(DataType type, void* base, std::int64_t index, double value);
// The value after such a store.
double round_to(DataType type, double value);

}  // namespace sinter
