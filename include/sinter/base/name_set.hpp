// A set of strings for checks over a whole graph: std::set and the standard's hash tables would be
// a fifteenth of what including the library costs.
#pragma once
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace sinter::detail {

class NameSet {
 public:
  explicit NameSet(std::size_t expected) : newest_(expected + 1, -1) {}

  bool contains(std::string_view name) const {
    for (int i = newest_[bucket(name)]; i >= 0; i = entry(i).older)
      if (entry(i).name == name) return true;
    return false;
  }
  // False where the name was there already.
  bool insert(std::string name) {
    if (contains(name)) return false;
    int& newest = newest_[bucket(name)];
    entries_.push_back({std::move(name), newest});
    newest = static_cast<int>(entries_.size()) - 1;
    return true;
  }

 private:
  struct Entry {
    std::string name;
    int older;  // the next entry of the same bucket
  };
  std::size_t bucket(std::string_view name) const {
    return std::hash<std::string_view>()(name) % newest_.size();
  }
  const Entry& entry(int i) const { return entries_[static_cast<std::size_t>(i)]; }

  std::vector<int> newest_;  // by bucket; -1 where it is empty
  std::vector<Entry> entries_;
};

}  // namespace sinter::detail
