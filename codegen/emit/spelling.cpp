#include "emit/spelling.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

namespace sinter {
namespace {

constexpr std::size_t kMaxLength = 40;

// Words that generated source cannot use for a variable: the language's lower-case keywords, macros
// that compilers predefine without underscores, and the generator's own names.
constexpr std::string_view kReserved[] = {"acc",
                                          "acc_gradient",
                                          "additive",
                                          "adds_stats",
                                          "advance",
                                          "alignas",
                                          "alignof",
                                          "and",
                                          "and_eq",
                                          "args",
                                          "asm",
                                          "assert",
                                          "auto",
                                          "averages_pixels",
                                          "begins_anywhere",
                                          "beside",
                                          "bitand",
                                          "bitor",
                                          "blocks_of_round",
                                          "bool",
                                          "break",
                                          "c",
                                          "case",
                                          "catch",
                                          "char",
                                          "char16_t",
                                          "char32_t",
                                          "char8_t",
                                          "chunk",
                                          "class",
                                          "co_await",
                                          "co_return",
                                          "co_yield",
                                          "columns",
                                          "compl",
                                          "concept",
                                          "const",
                                          "const_cast",
                                          "consteval",
                                          "constexpr",
                                          "constinit",
                                          "continue",
                                          "count",
                                          "cross_row",
                                          "decltype",
                                          "default",
                                          "delete",
                                          "do",
                                          "double",
                                          "draw",
                                          "draw_again",
                                          "draws",
                                          "draws_again",
                                          "dynamic",
                                          "dynamic_cast",
                                          "e",
                                          "element",
                                          "element_beside",
                                          "else",
                                          "entries_first",
                                          "enum",
                                          "explicit",
                                          "export",
                                          "extern",
                                          "false",
                                          "fetch",
                                          "fetch_weights",
                                          "fill",
                                          "float",
                                          "flush",
                                          "for",
                                          "fragment",
                                          "friend",
                                          "from_end",
                                          "goto",
                                          "has_elements",
                                          "held_steps",
                                          "i386",
                                          "if",
                                          "in_pairs",
                                          "inline",
                                          "int",
                                          "kept",
                                          "key_warps",
                                          "last_keys_first",
                                          "last_queries",
                                          "linux",
                                          "long",
                                          "long_number_of",
                                          "mask_block",
                                          "mask_divides",
                                          "masks_pairs",
                                          "mutable",
                                          "namespace",
                                          "neighbours",
                                          "new",
                                          "next",
                                          "noexcept",
                                          "not",
                                          "not_eq",
                                          "nullptr",
                                          "number",
                                          "number_of",
                                          "of_keys",
                                          "of_row",
                                          "of_rows",
                                          "operator",
                                          "or",
                                          "or_eq",
                                          "page",
                                          "pooled_row",
                                          "private",
                                          "protected",
                                          "public",
                                          "random",
                                          "recompute",
                                          "reductions",
                                          "refetch",
                                          "register",
                                          "reinterpret_cast",
                                          "requires",
                                          "restrict",
                                          "return",
                                          "rounded_dp",
                                          "rounded_ds",
                                          "rounds",
                                          "row",
                                          "row_totals",
                                          "segment",
                                          "short",
                                          "signed",
                                          "sinter",
                                          "sizeof",
                                          "static",
                                          "static_assert",
                                          "static_cast",
                                          "store_row",
                                          "store_rows",
                                          "stores_lines",
                                          "stores_pixels",
                                          "stores_rows",
                                          "stores_totals",
                                          "struct",
                                          "switch",
                                          "take",
                                          "template",
                                          "this",
                                          "thread_local",
                                          "throw",
                                          "true",
                                          "try",
                                          "typedef",
                                          "typeid",
                                          "typename",
                                          "typeof",
                                          "union",
                                          "unix",
                                          "unsigned",
                                          "using",
                                          "virtual",
                                          "void",
                                          "volatile",
                                          "wchar_t",
                                          "while",
                                          "width",
                                          "windows",
                                          "xor",
                                          "xor_eq"};
static_assert(std::is_sorted(std::begin(kReserved), std::end(kReserved)));

bool is_reserved(std::string_view s) {
  return s.starts_with("map_") ||  // tensor maps
         std::binary_search(std::begin(kReserved), std::end(kReserved), s);
}

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Letters and digits in lower case, one underscore for any run of others, none at the ends.
std::string plain(std::string_view name) {
  std::string s;
  for (char c : name) {
    if (s.size() == kMaxLength) break;
    if (is_letter(c))
      s += static_cast<char>(c | 0x20);
    else if (is_digit(c))
      s += c;
    else if (!s.empty() && s.back() != '_')
      s += '_';
  }
  while (!s.empty() && s.back() == '_') s.pop_back();
  return s;
}

}  // namespace

std::string Identifiers::add(std::string_view name, std::string_view fallback) {
  std::string s = plain(name);
  if (s.empty()) s = fmt::format("{}{}", fallback, unnamed_++);
  if (is_digit(s[0])) s.insert(0, std::string(fallback) + "_");
  if (is_reserved(s)) s += "_t";
  std::string unique = s;
  for (int i = 2; !taken_.insert(unique).second; ++i) unique = fmt::format("{}_{}", s, i);
  return unique;
}

std::string pascal_case(std::string_view snake) {
  std::string s;
  bool start = true;
  for (char c : snake) {
    if (c == '_') {
      start = true;
      continue;
    }
    s += start && c >= 'a' && c <= 'z' ? static_cast<char>(c & ~0x20) : c;
    start = false;
  }
  return s;
}

std::string_view storage_type(DataType type) {
  switch (type) {
    case DataType::f64:
      return "sinter::f64";
    case DataType::f16:
      return "sinter::f16";
    case DataType::bf16:
      return "sinter::bf16";
    case DataType::f8e4m3:
      return "sinter::f8e4m3";
    case DataType::f8e5m2:
      return "sinter::f8e5m2";
    case DataType::f8e8m0:
      return "sinter::f8e8m0";
    case DataType::f4e2m1:
      return "sinter::f4e2m1";
    case DataType::i8:
      return "sinter::i8";
    case DataType::u8:
      return "sinter::u8";
    case DataType::i32:
      return "sinter::i32";
    case DataType::i64:
      return "sinter::i64";
    case DataType::boolean:
      return "sinter::bool8";
    default:
      return "sinter::f32";
  }
}

std::string_view value_type(DataType arithmetic) {
  return arithmetic == DataType::f64 ? "double" : "float";
}

std::string literal(double value, DataType arithmetic) {
  if (arithmetic != DataType::f64) {
    const float f = static_cast<float>(value);
    if (!std::isfinite(f))
      return fmt::format("__int_as_float({:#010x})", std::bit_cast<std::uint32_t>(f));
    if (f == std::trunc(f) && std::abs(f) < 1e6f) return fmt::format("{:.1f}f", f);
    return fmt::format("{:a}f", f);
  }
  if (!std::isfinite(value))
    return fmt::format("__longlong_as_double({:#018x}ll)", std::bit_cast<std::uint64_t>(value));
  if (value == std::trunc(value) && std::abs(value) < 1e15) return fmt::format("{:.1f}", value);
  return fmt::format("{:a}", value);
}

std::string dims_type(const Dims& dims) {
  return fmt::format("sinter::Dims<{}>", fmt::join(dims.begin(), dims.end(), ", "));
}

}  // namespace sinter
