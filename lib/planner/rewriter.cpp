#include "planner/rewriter.hpp"

#include <algorithm>

namespace sinter {
namespace {

std::size_t at(std::int32_t id) { return static_cast<std::size_t>(id); }

}  // namespace

Rewriter::Rewriter(const Lowered& lowered)
    : options_(lowered.graph->options()),
      tensors_(lowered.graph->tensors()),
      nodes_(lowered.graph->nodes()),
      origin_(lowered.origin) {
  for (TensorId t = 0; at(t) < tensors_.size(); ++t)
    tensors_[at(t)].data_type = lowered.graph->type(t);
}

const Node* Rewriter::made_by(TensorId t, OpKind op) const {
  const NodeId p = producer(t);
  return p >= 0 && node(p).op == op ? &node(p) : nullptr;
}

void Rewriter::find_readers() const {
  if (known_) return;
  known_ = true;
  readers_.assign(tensors_.size(), {});
  live_.assign(nodes_.size(), 0);
  const auto visit = [&](const auto& self, NodeId n) -> void {
    if (n < 0 || live_[at(n)]) return;
    live_[at(n)] = 1;
    for (TensorId t : node(n).inputs) {
      if (t < 0) continue;
      auto& readers = readers_[at(t)];
      if (readers.empty() || readers.back() != n) readers.push_back(n);
      self(self, producer(t));
    }
  };
  for (TensorId t = 0; at(t) < tensors_.size(); ++t)
    if ((*this)[t].output) visit(visit, producer(t));
  for (auto& readers : readers_) {
    std::sort(readers.begin(), readers.end());
    readers.erase(std::unique(readers.begin(), readers.end()), readers.end());
  }
}

DataType Rewriter::partial_type(const Node& n, TensorId y) const {
  bool narrow =
      fits_f32(n.compute == DataType::none ? options_.compute : n.compute) && fits_f32(type(y));
  for (TensorId t : n.inputs) narrow = narrow && (t < 0 || fits_f32(type(t)));
  return narrow ? DataType::f32 : DataType::f64;
}

bool Rewriter::live(NodeId n) const {
  find_readers();
  return live_[at(n)] != 0;
}

const std::vector<NodeId>& Rewriter::readers(TensorId t) const {
  find_readers();
  return readers_[at(t)];
}

std::string Rewriter::unused_name(const std::string& base) const {
  const auto taken = [&](const std::string& name) {
    return std::any_of(tensors_.begin(), tensors_.end(),
                       [&](const auto& t) { return t.name == name; });
  };
  std::string name = base;
  for (int i = 2; taken(name); ++i) name = base + "_" + std::to_string(i);
  return name;
}

TensorId Rewriter::tensor_like(TensorId t, const Dims& dim, DataType type,
                               std::string_view suffix) {
  TensorDesc d;
  d.dim = dim;
  d.dim_known = true;
  d.data_type = type;
  d.where = (*this)[t].where;
  d.name = unused_name((*this)[t].name + std::string(suffix));
  known_ = false;
  tensors_.push_back(std::move(d));
  return static_cast<TensorId>(tensors_.size()) - 1;
}

TensorId Rewriter::scalar(double value, DataType type) {
  TensorDesc d;
  d.dim = {1};
  d.dim_known = true;
  d.data_type = type;
  d.has_value = true;
  d.value = value;
  d.name = unused_name("constant");
  known_ = false;
  tensors_.push_back(std::move(d));
  return static_cast<TensorId>(tensors_.size()) - 1;
}

void Rewriter::make(TensorId y, OpKind op, Attributes attributes, std::vector<TensorId> inputs,
                    NodeId like) {
  Node n = node(like);
  n.op = op;
  n.attributes = std::move(attributes);
  n.inputs = std::move(inputs);
  n.outputs = {y};
  nodes_.push_back(std::move(n));
  origin_.push_back(origin_[at(like)]);
  known_ = false;
  tensors_[at(y)].producer = nodes() - 1;
}

void Rewriter::redirect(TensorId from, TensorId to) {
  for (auto& n : nodes_) std::replace(n.inputs.begin(), n.inputs.end(), from, to);
  known_ = false;
}

Lowered Rewriter::finish() const {
  Lowered result;
  result.graph = std::make_unique<Graph>(options_);
  Graph& g = *result.graph;
  std::vector<TensorId> written(tensors_.size(), kNoTensor);
  std::vector<char> done(nodes_.size(), 0);
  const auto tensor = [&](TensorId t) {
    if (written[at(t)] != kNoTensor) return written[at(t)];
    TensorDesc d = tensors_[at(t)];
    d.producer = -1;
    d.read = false;
    return written[at(t)] = g.declare(std::move(d));
  };
  const auto write = [&](const auto& self, NodeId id) -> void {
    if (id < 0 || done[at(id)]) return;
    done[at(id)] = 1;
    const Node& n = node(id);
    for (TensorId t : n.inputs)
      if (t >= 0) self(self, producer(t));
    std::vector<TensorId> inputs, outputs;
    for (TensorId t : n.inputs) inputs.push_back(t < 0 ? kNoTensor : tensor(t));
    for (TensorId t : n.outputs)
      outputs.push_back(t < 0 || producer(t) != id ? kNoTensor : tensor(t));
    g.add(n.op, n.attributes, std::move(inputs), std::move(outputs), {n.name, n.compute}, n.where);
    result.origin.push_back(origin_[at(id)]);
  };
  for (TensorId t = 0; at(t) < tensors_.size(); ++t)  // what the caller gives, in his order
    if (producer(t) < 0) tensor(t);
  for (NodeId id = 0; id < nodes(); ++id)
    if (live(id)) write(write, id);
  g.check();
  return result;
}

}  // namespace sinter
