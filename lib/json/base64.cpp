// One text for the same bytes: padding is required and the bits behind it are zero.
#include "json/base64.hpp"

#include <array>
#include <cstdint>

namespace sinter::json {
namespace {

constexpr std::string_view kDigits =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

constexpr auto kValues = [] {
  std::array<std::int8_t, 256> values{};
  for (auto& v : values) v = -1;
  for (std::size_t i = 0; i < kDigits.size(); ++i)
    values[static_cast<unsigned char>(kDigits[i])] = static_cast<std::int8_t>(i);
  return values;
}();

}  // namespace

std::string to_base64(std::string_view bytes) {
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    const std::size_t left = bytes.size() - i;
    std::uint32_t group = 0;
    for (std::size_t j = 0; j < 3; ++j)
      group = group << 8 | (j < left ? static_cast<unsigned char>(bytes[i + j]) : 0u);
    for (std::size_t j = 0; j < 4; ++j)
      text += j <= left ? kDigits[group >> (18 - 6 * j) & 63] : '=';
  }
  return text;
}

std::optional<std::string> from_base64(std::string_view text) {
  if (text.size() % 4 != 0) return std::nullopt;
  std::string bytes;
  bytes.reserve(text.size() / 4 * 3);
  for (std::size_t i = 0; i < text.size(); i += 4) {
    std::size_t padding = 0;
    if (i + 4 == text.size()) padding = text[i + 3] != '=' ? 0 : text[i + 2] != '=' ? 1 : 2;
    std::uint32_t group = 0;
    for (std::size_t j = 0; j < 4; ++j) {
      const int value = kValues[static_cast<unsigned char>(text[i + j])];
      const bool pad = j >= 4 - padding;
      if (!pad && value < 0) return std::nullopt;
      group = group << 6 | (pad ? 0u : static_cast<std::uint32_t>(value));
    }
    if (group & ((1u << 8 * padding) - 1)) return std::nullopt;  // one text for the same bytes
    for (std::size_t j = 0; j < 3 - padding; ++j)
      bytes += static_cast<char>(group >> (16 - 8 * j) & 255);
  }
  return bytes;
}

}  // namespace sinter::json
