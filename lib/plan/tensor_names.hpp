// Look-ups of many tensors by name: Graph::find() searches all of them.
#pragma once
#include <string_view>
#include <unordered_map>

#include "sinter/graph.hpp"

namespace sinter {

class TensorNames {
 public:
  explicit TensorNames(const Graph& graph) {
    for (std::size_t i = 0; i < graph.tensors().size(); ++i)
      ids_.emplace(graph.tensors()[i].name, static_cast<TensorId>(i));  // the first of a name
  }
  TensorId find(std::string_view name) const {  // kNoTensor where no tensor has it
    const auto found = ids_.find(name);
    return found != ids_.end() ? found->second : kNoTensor;
  }

 private:
  std::unordered_map<std::string_view, TensorId> ids_;
};

}  // namespace sinter
