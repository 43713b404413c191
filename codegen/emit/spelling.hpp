// How names and numbers are spelt in generated source. User text passes through here alone, and
// only as identifiers of [a-z0-9_].
#pragma once
#include <set>
#include <string>
#include <string_view>

#include "sinter/base/data_type.hpp"
#include "sinter/base/dims.hpp"

namespace sinter {

// Hands out identifiers that are unique within one scope.
class Identifiers {
 public:
  // From the user's name: lower case, at most 40 characters, no keyword; `fallback` and a number
  // where nothing of it is left.
  std::string add(std::string_view name, std::string_view fallback);

 private:
  std::set<std::string> taken_;
  int unnamed_ = 0;
};

std::string pascal_case(std::string_view snake);         // gelu_fwd: GeluFwd
std::string_view storage_type(DataType type);            // bf16: sinter::bf16
std::string_view value_type(DataType arithmetic);        // float or double
std::string literal(double value, DataType arithmetic);  // exact, also for infinities and NaN
std::string dims_type(const Dims& dims);                 // sinter::Dims<2, 3>

}  // namespace sinter
