// Data types of tensors and what is known about each: spelling, size, and the numeric format.
#pragma once
#include <cstdint>
#include <optional>
#include <string_view>

namespace sinter {

enum class DataType : std::uint8_t {
  none,  // not stated yet: the graph's default for the tensor's role is used
  f64, f32, f16, bf16, f8e4m3, f8e5m2, f8e8m0, f4e2m1, i8, u8, i32, i64, boolean,
  tf32,  // a compute type only: f32 storage, tensor-core products rounded to 11 significant bits
};

inline constexpr DataType f64 = DataType::f64, f32 = DataType::f32, f16 = DataType::f16,
                          bf16 = DataType::bf16, f8e4m3 = DataType::f8e4m3,
                          f8e5m2 = DataType::f8e5m2, f8e8m0 = DataType::f8e8m0,
                          f4e2m1 = DataType::f4e2m1, i8 = DataType::i8, u8 = DataType::u8,
                          i32 = DataType::i32, i64 = DataType::i64, boolean = DataType::boolean,
                          tf32 = DataType::tf32;

// One row per storage type. `bytes` is the size of one element in device memory; f4e2m1 takes one
// byte, the value in its low four bits. For floating formats: `precision` counts significant bits
// with the hidden one, `min_exponent` is the exponent of the smallest normal number, `largest` the
// largest finite value. For integers `lowest` and `largest` are the range.
struct DataTypeInfo {
  std::string_view name;
  int bytes;
  bool floating;
  int precision;
  int min_exponent;
  double lowest, largest;
  bool saturates;  // a conversion past `largest` gives `largest` instead of infinity
};

inline constexpr DataTypeInfo kDataTypes[] = {
    {"none", 0, false, 0, 0, 0, 0, false},
    {"f64", 8, true, 53, -1022, -0x1.fffffffffffffp1023, 0x1.fffffffffffffp1023, false},
    {"f32", 4, true, 24, -126, -0x1.fffffep127, 0x1.fffffep127, false},
    {"f16", 2, true, 11, -14, -65504, 65504, false},
    {"bf16", 2, true, 8, -126, -0x1.fep127, 0x1.fep127, false},
    {"f8e4m3", 1, true, 4, -6, -448, 448, true},
    {"f8e5m2", 1, true, 3, -14, -57344, 57344, true},
    {"f8e8m0", 1, true, 1, -127, 0x1p-127, 0x1p127, true},
    {"f4e2m1", 1, true, 2, 0, -6, 6, true},
    {"i8", 1, false, 7, 0, -128, 127, true},
    {"u8", 1, false, 8, 0, 0, 255, true},
    {"i32", 4, false, 31, 0, -2147483648.0, 2147483647.0, true},
    {"i64", 8, false, 63, 0, -0x1p63, 0x1p63, true},
    {"bool", 1, false, 1, 0, 0, 1, false},
    {"tf32", 4, true, 11, -126, -0x1.ffcp127, 0x1.ffcp127, false},
};

constexpr const DataTypeInfo& info(DataType t) { return kDataTypes[static_cast<int>(t)]; }
constexpr std::string_view name(DataType t) { return info(t).name; }
constexpr bool is_floating(DataType t) { return info(t).floating; }

constexpr std::optional<DataType> data_type_from_name(std::string_view text) {
  for (int i = 1; i < static_cast<int>(std::size(kDataTypes)); ++i)
    if (kDataTypes[i].name == text) return static_cast<DataType>(i);
  return std::nullopt;
}

// f32 holds every value of these types; the others are computed in f64 so that nothing is narrowed.
constexpr bool fits_f32(DataType t) {
  return t != DataType::f64 && t != DataType::i32 && t != DataType::i64;
}

}  // namespace sinter
