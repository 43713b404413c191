// What a word of a document stands for that is none of ours: the name that other libraries have for
// an operation, a mode or an attribute, or one that is near.
#pragma once
#include <span>
#include <string>
#include <string_view>

#include "sinter/ops/op_table.hpp"

namespace sinter::json {

// "did you mean 'x'", x being among `known`, or nothing.
std::string meant(std::string_view word, std::span<const std::string_view> known);
// The same of an operation; a pointwise mode is named with the operation that has it.
std::string meant_operation(std::string_view word, std::span<const std::string_view> known);
// Where the operation says what is no attribute of it: a port, or the dims of its result; or
// nothing.
std::string said_elsewhere(OpKind op, std::string_view attribute);

}  // namespace sinter::json
