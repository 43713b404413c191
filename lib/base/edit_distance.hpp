// How unlike two words are, for "did you mean".
#pragma once
#include <cstddef>
#include <string_view>

namespace sinter {

// Levenshtein's distance: letters to insert, remove or replace.
std::size_t edit_distance(std::string_view a, std::string_view b);

}  // namespace sinter
