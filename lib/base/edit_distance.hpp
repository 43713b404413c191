// How unlike two words are, for "did you mean".
#pragma once
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace sinter {

// Levenshtein's distance: letters to insert, remove or replace.
std::size_t edit_distance(std::string_view a, std::string_view b);

// "did you mean 'x'", or nothing where no known word is near.
std::string suggestion(std::string_view word, std::span<const std::string_view> known);

}  // namespace sinter
