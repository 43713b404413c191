// Machine code inside JSON: RFC 4648 base64, with padding, and nothing else accepted.
#pragma once
#include <optional>
#include <string>
#include <string_view>

namespace sinter::json {

std::string to_base64(std::string_view bytes);
std::optional<std::string> from_base64(std::string_view text);

}  // namespace sinter::json
