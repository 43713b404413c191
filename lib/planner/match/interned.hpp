// Texts by number, each once, so that what names many of them stays small and compares fast.
#pragma once
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace sinter {

class Interned {
 public:
  int operator()(std::string_view text) {
    if (last_ >= 0 && (*this)[last_] == text) return last_;
    if (const auto known = numbers_.find(text); known != numbers_.end())
      return last_ = known->second;
    last_ = static_cast<int>(texts_.size());
    texts_.push_back(&numbers_.try_emplace(std::string(text), last_).first->first);
    return last_;
  }
  const std::string& operator[](int number) const {
    return *texts_[static_cast<std::size_t>(number)];
  }

 private:
  struct Hash : std::hash<std::string_view> {
    using is_transparent = void;
  };
  std::unordered_map<std::string, int, Hash, std::equal_to<>> numbers_;
  int last_ = -1;                          // that was asked for, and often is again
  std::vector<const std::string*> texts_;  // keys of the map, which stay where they are
};

}  // namespace sinter
