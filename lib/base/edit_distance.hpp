// How unlike two words are, for "did you mean".
#pragma once
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace sinter {

std::string lower_case(std::string_view word);

// Letters to insert, remove or replace, and neighbours to swap.
std::size_t edit_distance(std::string_view a, std::string_view b);

// "did you mean 'x'", or nothing where no known word, nor the first word of one, is near or begins
// so. Upper and lower case are the same.
std::string suggestion(std::string_view word, std::span<const std::string_view> known);

}  // namespace sinter
