// The text of a kernel that serves many extents. Lists of integers of its text (sinter::Dims) hold
// sinter::dynamic(i) where the kernel's texts for two sets of extents differ; launch arguments
// take these places (codegen/device/core/dynamic.cuh), and those of constants that say in which
// order tiles run and, where it differs, how many terms an average has. What else depends on
// extents must be the same in all texts of a class.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sinter {

class ClassText {
 public:
  // Nothing where the texts differ in more than lists of integers.
  static std::optional<ClassText> of(std::string_view one, std::string_view other);

  // The numbers with which a launch of the class's text does what `text` does; nothing where `text`
  // is of another class. Whatever the class was made from, the two say the same: numbers come from
  // `text`, and all else is compared with it.
  std::optional<std::vector<std::int64_t>> numbers(std::string_view text) const;

  int count() const { return count_; }  // of numbers
  std::string text() const;             // with `long long dynamic[count]` as Args' first member

 private:
  struct Piece {
    // In a list of numbers, or a constant of its own: the order of tiles, the length of an average.
    enum class Kind : std::uint8_t { in_list, order, length };
    std::string before;  // what stands between the number before and this one
    int number;
    Kind kind;
  };
  std::vector<Piece> pieces_;
  std::string rest_;
  int count_ = 0;
};

}  // namespace sinter
