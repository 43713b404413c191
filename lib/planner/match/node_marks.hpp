// Sets of nodes whose members are told apart in constant time: one stamp a node, and a set is what
// bears the stamp that was given out for it.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "sinter/graph.hpp"

namespace sinter {

class NodeMarks {
 public:
  explicit NodeMarks(std::size_t nodes) : stamps_(nodes, 0) {}

  void clear() { ++now_; }
  bool contains(NodeId n) const { return stamps_[static_cast<std::size_t>(n)] == now_; }
  // False where it was there already.
  bool insert(NodeId n) {
    auto& stamp = stamps_[static_cast<std::size_t>(n)];
    if (stamp == now_) return false;
    stamp = now_;
    return true;
  }
  void erase(NodeId n) { stamps_[static_cast<std::size_t>(n)] = 0; }

 private:
  std::vector<std::uint64_t> stamps_;
  std::uint64_t now_ = 1;
};

// Memory for sets that are needed for a while, one in another; what was given back is used again.
class MarkPool {
 public:
  explicit MarkPool(std::size_t nodes) : nodes_(nodes) {}

  class Borrowed {
   public:
    explicit Borrowed(MarkPool& pool) : pool_(pool) {
      if (pool.idle_.empty()) pool.idle_.push_back(std::make_unique<NodeMarks>(pool.nodes_));
      marks_ = std::move(pool.idle_.back());
      pool.idle_.pop_back();
      marks_->clear();
    }
    ~Borrowed() {
      if (marks_) pool_.idle_.push_back(std::move(marks_));
    }
    Borrowed(Borrowed&&) = default;

    bool contains(NodeId n) const { return marks_->contains(n); }
    bool insert(NodeId n) { return marks_->insert(n); }
    void erase(NodeId n) { marks_->erase(n); }
    void clear() { marks_->clear(); }

   private:
    MarkPool& pool_;
    std::unique_ptr<NodeMarks> marks_;
  };

 private:
  std::size_t nodes_;
  std::vector<std::unique_ptr<NodeMarks>> idle_;
};

}  // namespace sinter
