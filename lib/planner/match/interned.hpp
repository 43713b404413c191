// Texts by number, each once, so that what names many of them stays small and compares fast.
#pragma once
#include <string>
#include <unordered_map>
#include <vector>

namespace sinter {

class Interned {
 public:
  int operator()(const std::string& text) {
    if (last_ >= 0 && (*this)[last_] == text) return last_;
    const auto [known, fresh] = numbers_.try_emplace(text, static_cast<int>(texts_.size()));
    if (fresh) texts_.push_back(&known->first);
    return last_ = known->second;
  }
  const std::string& operator[](int number) const {
    return *texts_[static_cast<std::size_t>(number)];
  }

 private:
  std::unordered_map<std::string, int> numbers_;
  int last_ = -1;                          // that was asked for, and often is again
  std::vector<const std::string*> texts_;  // keys of the map, which stay where they are
};

}  // namespace sinter
