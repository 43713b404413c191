#include "planner/rewrite/rewriter.hpp"

#include <algorithm>
#include <utility>

namespace sinter {
namespace {

std::size_t at(std::int32_t id) { return static_cast<std::size_t>(id); }

}  // namespace

Rewriter::Rewriter(const Lowered& lowered)
    : options_(lowered.graph->options()),
      tensors_(lowered.graph->tensors()),
      nodes_(lowered.graph->nodes()),
      origin_(lowered.origin),
      regions_(lowered.regions),
      region_(lowered.origin.size(), -1) {
  for (TensorId t = 0; at(t) < tensors_.size(); ++t)
    tensors_[at(t)].data_type = lowered.graph->type(t);
  for (int r = 0; at(r) < regions_.size(); ++r) {
    for (NodeId n : regions_[at(r)].nodes) region_[at(n)] = r;
    for (TensorId t : regions_[at(r)].inputs)
      if (t >= 0) read_by_[t].push_back(r);
  }
  placed_.resize(tensors_.size());
  find_readers();
}

const Node* Rewriter::made_by(TensorId t, OpKind op) const {
  const NodeId p = producer(t);
  return p >= 0 && node(p).op == op ? &node(p) : nullptr;
}

// ---- who reads what

bool Rewriter::needed(TensorId t) const { return (*this)[t].output || !readers_[at(t)].empty(); }

// From the last node to the first: the graph stands in an order that can be executed.
void Rewriter::find_readers() {
  reads_.resize(tensors_.size());
  readers_.resize(tensors_.size());
  uses_.assign(nodes_.size(), 0);
  for (NodeId n = nodes() - 1; n >= 0; --n) {
    for (TensorId t : node(n).outputs)
      if (t >= 0 && producer(t) == n && needed(t)) ++uses_[at(n)];
    for (TensorId t : node(n).inputs) {
      if (t < 0) continue;
      for (auto* nodes : {&reads_[at(t)], live(n) ? &readers_[at(t)] : nullptr})
        if (nodes && (nodes->empty() || nodes->back() != n)) nodes->push_back(n);
    }
  }
  for (auto& readers : readers_) std::reverse(readers.begin(), readers.end());
}

// One more result of the node is needed. If it is the first, the node reads its operands from now
// on, and so on upwards.
void Rewriter::add_use(NodeId producer_node) {
  std::vector<NodeId> used{producer_node};
  while (!used.empty()) {
    const NodeId n = used.back();
    used.pop_back();
    if (n < 0 || uses_[at(n)]++ > 0) continue;
    for (TensorId t : node(n).inputs) {
      if (t < 0) continue;
      auto& readers = readers_[at(t)];
      const auto place = std::lower_bound(readers.begin(), readers.end(), n);
      if (place != readers.end() && *place == n) continue;
      if (!needed(t)) used.push_back(producer(t));
      readers.insert(place, n);
    }
  }
}

// The opposite.
void Rewriter::drop_use(NodeId producer_node) {
  std::vector<NodeId> dropped{producer_node};
  while (!dropped.empty()) {
    const NodeId n = dropped.back();
    dropped.pop_back();
    if (n < 0 || --uses_[at(n)] > 0) continue;
    for (TensorId t : node(n).inputs) {
      if (t < 0) continue;
      auto& readers = readers_[at(t)];
      const auto place = std::lower_bound(readers.begin(), readers.end(), n);
      if (place == readers.end() || *place != n) continue;
      readers.erase(place);
      if (!needed(t)) dropped.push_back(producer(t));
    }
  }
}

bool Rewriter::live(NodeId n) const { return uses_[at(n)] > 0; }

const std::vector<NodeId>& Rewriter::readers(TensorId t) const { return readers_[at(t)]; }

// ---- where tensors lie

std::optional<Location> Rewriter::location(TensorId t) const {
  std::vector<TensorId> views{t};  // whose locations are not known, from the result to the source
  while (!placed_[at(views.back())].known) {
    const TensorDesc& d = (*this)[views.back()];
    if (d.producer < 0 || d.output || !is_view_op(node(d.producer).op)) {
      placed_[at(views.back())] = {true, stored_by_itself(*this, views.back())};
      break;
    }
    views.push_back(node(d.producer).inputs[0]);
  }
  for (std::size_t i = views.size() - 1; i-- > 0;)
    placed_[at(views[i])] = {true, seen_through(*this, views[i], node(producer(views[i])),
                                                placed_[at(views[i + 1])].at)};
  return placed_[at(t)].at;
}

// Of the tensor, and of its views.
void Rewriter::forget_location(TensorId t) {
  std::vector<TensorId> changed{t};
  while (!changed.empty()) {
    Placed& p = placed_[at(changed.back())];
    const auto& reads = reads_[at(changed.back())];
    changed.pop_back();
    if (!p.known) continue;
    p = {};
    for (NodeId n : reads)
      if (is_view_op(node(n).op)) changed.push_back(node(n).outputs[0]);
  }
}

void Rewriter::set_stride(TensorId t, const Dims& stride) {
  tensors_[at(t)].stride = stride;
  forget_location(t);
}

// ---- changes

DataType Rewriter::partial_type(const Node& n, TensorId y) const {
  bool narrow =
      fits_f32(n.compute == DataType::none ? options_.compute : n.compute) && fits_f32(type(y));
  for (TensorId t : n.inputs) narrow = narrow && (t < 0 || fits_f32(type(t)));
  return narrow ? DataType::f32 : DataType::f64;
}

// A name that no tensor has: `name` or, where it is taken, with the next free number behind it.
TensorId Rewriter::add_tensor(TensorDesc d, const std::string& name) {
  if (names_.empty())  // nothing was added yet
    for (const TensorDesc& t : tensors_) names_.insert(t.name);
  d.name = name;
  if (!names_.insert(name).second)
    for (int& i = last_suffix_.try_emplace(name, 1).first->second;;) {
      d.name = name + "_" + std::to_string(++i);
      if (names_.insert(d.name).second) break;
    }
  tensors_.push_back(std::move(d));
  reads_.emplace_back();
  readers_.emplace_back();
  placed_.emplace_back();
  return static_cast<TensorId>(tensors_.size()) - 1;
}

TensorId Rewriter::tensor_like(TensorId t, const Dims& dim, DataType type,
                               std::string_view suffix) {
  TensorDesc d;
  d.dim = dim;
  d.dim_known = true;
  d.data_type = type;
  d.where = (*this)[t].where;
  return add_tensor(std::move(d), (*this)[t].name + std::string(suffix));
}

TensorId Rewriter::scalar(double value, DataType type, int rank) {
  TensorDesc d;
  d.dim = Dims::filled(rank, 1);
  d.dim_known = true;
  d.data_type = type;
  d.has_value = true;
  d.value = value;
  return add_tensor(std::move(d), "constant");
}

void Rewriter::make(TensorId y, OpKind op, Attributes attributes, std::vector<TensorId> inputs,
                    NodeId like) {
  Node n = node(like);
  n.op = op;
  n.attributes = std::move(attributes);
  n.inputs = std::move(inputs);
  n.outputs = {y};
  const NodeId id = nodes(), before = producer(y);
  for (TensorId t : n.inputs)
    if (t >= 0) reads_[at(t)].push_back(id);
  nodes_.push_back(std::move(n));
  uses_.push_back(0);
  origin_.push_back(origin_[at(like)]);
  region_.push_back(region_[at(like)]);
  if (before >= 0 && region_[at(before)] >= 0) {  // one with this output is dropped
    auto& outputs = regions_[at(region_[at(before)])].outputs;
    if (std::find(outputs.begin(), outputs.end(), y) != outputs.end()) outputs.clear();
  }
  forget_location(y);
  tensors_[at(y)].producer = id;
  if (!needed(y)) return;
  add_use(id);
  drop_use(before);
}

void Rewriter::set_input(NodeId n, int port, TensorId to) {
  auto& inputs = nodes_[at(n)].inputs;
  const TensorId from = std::exchange(inputs[at(port)], to);
  if (is_view_op(node(n).op)) forget_location(node(n).outputs[0]);
  reads_[at(to)].push_back(n);
  const bool still = std::find(inputs.begin(), inputs.end(), from) != inputs.end();
  if (!still) std::erase(reads_[at(from)], n);
  if (!live(n)) return;
  if (!needed(to)) add_use(producer(to));
  auto& readers = readers_[at(to)];
  const auto place = std::lower_bound(readers.begin(), readers.end(), n);
  if (place == readers.end() || *place != n) readers.insert(place, n);
  if (still) return;
  std::erase(readers_[at(from)], n);
  if (!needed(from)) drop_use(producer(from));
}

void Rewriter::redirect(TensorId from, TensorId to) {
  const std::vector<NodeId> nodes = std::move(reads_[at(from)]);
  reads_[at(from)].clear();
  for (NodeId n : nodes) {
    if (is_view_op(node(n).op)) forget_location(node(n).outputs[0]);
    auto& inputs = nodes_[at(n)].inputs;
    std::replace(inputs.begin(), inputs.end(), from, to);
    reads_[at(to)].push_back(n);
    if (!live(n)) continue;
    if (!needed(to)) add_use(producer(to));
    auto& readers = readers_[at(to)];
    const auto place = std::lower_bound(readers.begin(), readers.end(), n);
    if (place == readers.end() || *place != n) readers.insert(place, n);
  }
  if (const auto regions = read_by_.find(from); regions != read_by_.end()) {
    const std::vector<int> readers = std::move(regions->second);
    read_by_.erase(regions);
    for (int r : readers) {
      auto& inputs = regions_[at(r)].inputs;
      std::replace(inputs.begin(), inputs.end(), from, to);
      read_by_[to].push_back(r);
    }
  }
  if (readers_[at(from)].empty()) return;
  readers_[at(from)].clear();
  if (!needed(from)) drop_use(producer(from));
}

const Region* Rewriter::region_of(NodeId n) const {
  return in_region(n) ? &regions_[at(region_[at(n)])] : nullptr;
}

void Rewriter::add_region(Region region) {
  const int number = static_cast<int>(regions_.size());
  for (NodeId n : region.nodes) region_[at(n)] = number;
  for (TensorId t : region.inputs)
    if (t >= 0) read_by_[t].push_back(number);
  region.origin = origin_[at(region.nodes.front())];
  regions_.push_back(std::move(region));
}

void Rewriter::read_by_region(NodeId n, int port, TensorId to) {
  const int region = region_[at(n)];
  auto& inputs = regions_[at(region)].inputs;
  const TensorId from = std::exchange(inputs[at(port)], to);
  read_by_[to].push_back(region);
  if (std::find(inputs.begin(), inputs.end(), from) == inputs.end())
    std::erase(read_by_[from], region);
}

// Its outputs are those that it had, and all else that its nodes make stays among them.
bool Rewriter::whole(int region, const std::vector<NodeId>& members) const {
  const Region& r = regions_[at(region)];
  const auto among = [](const std::vector<TensorId>& tensors, TensorId t) {
    return std::find(tensors.begin(), tensors.end(), t) != tensors.end();
  };
  const auto inside = [&](NodeId n) { return n >= 0 && region_[at(n)] == region; };
  for (TensorId t : r.outputs)
    if (t >= 0 && (!needed(t) || !inside(producer(t)))) return false;
  for (NodeId n : members) {
    for (TensorId t : node(n).inputs)
      if (t >= 0 && !(*this)[t].has_value && !inside(producer(t)) && !among(r.inputs, t))
        return false;
    for (TensorId t : node(n).outputs)
      if (t >= 0 && producer(t) == n && !among(r.outputs, t) &&
          ((*this)[t].output || !std::all_of(readers(t).begin(), readers(t).end(), inside)))
        return false;
  }
  return !r.outputs.empty() && !members.empty();
}

Lowered Rewriter::finish() const {
  Lowered result;
  result.graph = std::make_unique<Graph>(options_);
  Graph& g = *result.graph;
  detail::GraphEditor(g).allow_any_rank();
  std::vector<TensorId> written(tensors_.size(), kNoTensor);
  std::vector<char> done(nodes_.size(), 0);
  std::vector<NodeId> new_id(nodes_.size(), -1);
  std::vector<std::vector<NodeId>> members(regions_.size());
  const auto tensor = [&](TensorId t) {
    if (written[at(t)] != kNoTensor) return written[at(t)];
    TensorDesc d = tensors_[at(t)];
    d.producer = -1;
    d.read = false;
    return written[at(t)] = detail::GraphEditor(g).declare(std::move(d));
  };
  const auto write = [&](NodeId id) {
    const Node& n = node(id);
    std::vector<TensorId> inputs, outputs;
    for (TensorId t : n.inputs) inputs.push_back(t < 0 ? kNoTensor : tensor(t));
    for (TensorId t : n.outputs)
      outputs.push_back(t < 0 || producer(t) != id ? kNoTensor : tensor(t));
    detail::GraphEditor(g).add(n.op, n.attributes, std::move(inputs), std::move(outputs),
                               {n.name, n.compute}, n.where);
    if (region_[at(id)] >= 0) members[at(region_[at(id)])].push_back(id);
    new_id[at(id)] = static_cast<NodeId>(result.origin.size());
    result.origin.push_back(origin_[at(id)]);
  };
  struct Open {
    NodeId node;
    std::size_t next;  // input whose producer is to be written
  };
  std::vector<Open> open;
  const auto begin = [&](NodeId id) {
    if (id < 0 || done[at(id)]) return;
    done[at(id)] = 1;
    open.push_back({id, 0});
  };
  const auto write_behind_operands = [&](NodeId id) {
    begin(id);
    while (!open.empty()) {
      const auto& inputs = node(open.back().node).inputs;
      if (open.back().next < inputs.size()) {
        const TensorId t = inputs[open.back().next++];
        if (t >= 0) begin(producer(t));
      } else {
        write(open.back().node);
        open.pop_back();
      }
    }
  };
  for (TensorId t = 0; at(t) < tensors_.size(); ++t)  // what the caller gives, in his order
    if (producer(t) < 0) tensor(t);
  for (NodeId id = 0; id < nodes(); ++id)
    if (live(id)) write_behind_operands(id);
  for (std::size_t i = 0; i < regions_.size(); ++i) {
    if (!whole(static_cast<int>(i), members[i])) continue;
    Region r = regions_[i];
    for (auto* tensors : {&r.inputs, &r.outputs})
      for (TensorId& t : *tensors) t = t < 0 ? kNoTensor : written[at(t)];
    r.nodes.clear();
    for (NodeId n : members[i]) r.nodes.push_back(new_id[at(n)]);
    result.regions.push_back(std::move(r));
  }
  g.check();
  return result;
}

}  // namespace sinter
