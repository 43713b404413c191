// Whole files in and out. Nothing else in the library reads a path that the user gave.
#pragma once
#include <string>
#include <string_view>

#include "sinter/base/result.hpp"

namespace sinter {

// At most `most` bytes; a longer file is an error.
Result<std::string> read_file(const std::string& path, std::size_t most = std::size_t{1} << 31);
// Written beside the target and renamed, so that a reader never sees half of it.
Status write_file(const std::string& path, std::string_view bytes);

}  // namespace sinter
