// Graph JSON to a checked Graph (GRAPH_JSON.md). Everything wrong with the document is reported at
// once; what follows from an error that was reported is not reported again.
#include <algorithm>
#include <cmath>
#include <queue>
#include <unordered_map>

#include "base/edit_distance.hpp"
#include "json/fields.hpp"
#include "json/graph_json.hpp"
#include "json/other_names.hpp"
#include "reference/element.hpp"
#include "sinter/json.hpp"
#include "sinter/ops/default_attributes.hpp"

namespace sinter::json {
namespace {

struct PendingNode {
  OpKind op{};
  Attributes attributes;
  NodeOptions options;
  std::vector<TensorId> inputs, outputs;
  std::string label;  // its name, or "op #position in the document"
  unsigned line = 0;
  bool ok = true;  // false: reported already
};

class GraphReader {
 public:
  GraphReader(const Value& document, std::string_view file, bool needs_output)
      : document_(document), fields_(file), needs_output_(needs_output) {}

  Result<Shared<Graph>> read() {
    if (!read_head()) return std::move(fields_.errors());
    read_tensors();
    read_nodes();
    std::vector<int> order;
    if (connect(order)) {
      for (int i : order) add(nodes_[static_cast<std::size_t>(i)]);
      check_whole();
    }
    if (!fields_.errors().empty()) return std::move(fields_.errors());
    return graph_;
  }

 private:
  bool read_head();
  void read_tensors();
  void read_tensor(const Member& m);
  bool read_scalar(const Value& v, const Place& at, TensorDesc& t);
  bool read_bound_scalar(const Value& v, const Place& at, TensorDesc& t);
  void read_nodes();
  void read_node(const Value& v, std::size_t index);
  void poison_outputs(const Value& node);
  void read_fields(const Value& v, PendingNode& n);
  void read_attributes(const Value& v, PendingNode& n);
  void read_ports(const Value& v, PendingNode& n, std::string_view side);
  bool connect(std::vector<int>& order);
  void report_cycle(const std::vector<int>& waiting);
  void add(PendingNode& n);
  bool take_reports(std::size_t before, const std::string& node);
  void check_whole();
  TensorId tensor_named(const std::string& name, unsigned line);
  std::string nearest_tensor(TensorId unknown) const;
  Where where(unsigned line) const {
    Where w;
    w.file = fields_.file();
    w.line = line;
    return w;
  }

  const Value& document_;
  Fields fields_;
  bool needs_output_;
  Shared<Graph> graph_;
  std::unordered_map<std::string, TensorId> ids_;
  std::vector<bool> declared_, poisoned_;  // by tensor
  std::vector<TensorId> unproduced_;       // that some node ought to produce
  std::size_t errors_before_nodes_ = 0;
  bool too_many_ = false;
  std::vector<int> maker_;  // by tensor: the pending node, -1 where there is none
  std::vector<PendingNode> nodes_;
};

// "did you mean ..." of the tensors that are declared or produced; nothing where they are many.
std::string GraphReader::nearest_tensor(TensorId unknown) const {
  std::vector<std::string_view> known;
  for (auto at = ids_.begin(); at != ids_.end() && ids_.size() < 2000; ++at)
    if (const auto id = static_cast<std::size_t>(at->second); declared_[id] || maker_[id] >= 0)
      known.emplace_back(at->first);
  std::ranges::sort(known);
  return suggestion((*graph_)[unknown].name, known);
}

bool GraphReader::read_head() {
  const Place none;
  if (!fields_.is(Kind::object, document_, none)) return false;
  const Value* format = document_.find("format");
  if (!format || format->kind != Kind::string || format->text != kGraphFormat)
    return fields_.fail(Rule::json_format, none.with("format"),
                        format ? format->line : document_.line,
                        format ? format->describe() : "no such field", "'sinter.graph'");
  const Value* version = document_.find("version");
  if (!version || version->kind != Kind::integer || version->integer != kGraphVersion)
    return fields_.fail(Rule::json_format, none.with("version"),
                        version ? version->line : document_.line,
                        version ? version->describe() : "no such field", "1");
  static constexpr std::string_view known[] = {
      "format",  "version", "name", "io_data_type", "intermediate_data_type", "compute_data_type",
      "tensors", "nodes"};
  fields_.only(document_, none, known);

  GraphOptions options;
  if (const Value* v = document_.find("name")) fields_.read(*v, none.with("name"), options.name);
  const auto type = [&](const char* field, DataType& out, bool compute) {
    if (const Value* v = document_.find(field)) fields_.read(*v, none.with(field), out, compute);
  };
  type("io_data_type", options.io, false);
  type("intermediate_data_type", options.intermediate, false);
  type("compute_data_type", options.compute, true);
  graph_ = Shared<Graph>::make(std::move(options));

  for (const char* field : {"tensors", "nodes"}) {
    const Value* v = fields_.required(document_, none, field, Rule::json_field);
    const bool list = field[0] == 'n';
    if (!v || !fields_.is(list ? Kind::array : Kind::object, *v, none.with(field))) return false;
    const auto count = list ? v->items.size() : v->members.size();
    const auto most = list ? kMaxNodes : kMaxTensors;
    if (count > most)
      return fields_.fail(Rule::json_format, none.with(field), v->line, std::to_string(count),
                          "at most " + std::to_string(most));
  }
  return true;
}

TensorId GraphReader::tensor_named(const std::string& name, unsigned line) {
  if (ids_.size() >= kMaxTensors && !ids_.contains(name)) {
    if (!too_many_)
      fields_.fail(Rule::json_format, {"", name, ""}, line, "more tensors",
                   "at most " + std::to_string(kMaxTensors));
    too_many_ = true;
    return 0;  // any: the document is refused
  }
  const auto [found, fresh] = ids_.try_emplace(name, static_cast<TensorId>(ids_.size()));
  if (fresh) {
    TensorDesc t;
    t.name = name;
    t.named = true;
    t.where = where(line);
    detail::GraphEditor(*graph_).declare(std::move(t));
    declared_.push_back(false);
    poisoned_.push_back(false);
    maker_.push_back(-1);
  }
  return found->second;
}

void GraphReader::read_tensors() {
  for (const auto& m : document_.find("tensors")->members) read_tensor(m);
}

void GraphReader::read_tensor(const Member& m) {
  const TensorId id = tensor_named(m.key, m.value.line);
  declared_[static_cast<std::size_t>(id)] = true;
  const Place at{"", m.key, ""};
  TensorDesc t = (*graph_)[id];
  static constexpr std::string_view known[] = {"dim",   "stride",        "data_type", "output",
                                               "value", "pass_by_value", "constant",  "alias",
                                               "uid",   "alignment"};
  bool ok = fields_.is(Kind::object, m.value, at) && fields_.only(m.value, at, known);
  const auto field = [&](const char* name, auto& out, auto... more) {
    const Value* v = m.value.find(name);
    if (v) ok &= fields_.read(*v, at.with(name), out, more...);
    return v != nullptr;
  };
  t.dim_known = field("dim", t.dim, Rule::tensor_rank);
  field("stride", t.stride, Rule::tensor_stride);
  field("data_type", t.data_type);
  field("output", t.output);
  field("uid", t.uid);
  field("alignment", t.alignment);
  field("constant", t.constant);
  std::string alias;
  if (field("alias", alias)) t.alias = tensor_named(alias, m.value.line);
  bool by_value = false;
  field("pass_by_value", by_value);
  if (const Value* v = m.value.find("value")) ok &= read_scalar(*v, at.with("value"), t);
  if (by_value) ok &= read_bound_scalar(m.value, at, t);
  if (ok) {
    const std::size_t before = graph_->diagnostics().size();
    detail::GraphEditor(*graph_).valid_tensor(t, false);
    ok = !take_reports(before, "");
  }
  poisoned_[static_cast<std::size_t>(id)] = !ok;
  if (ok) detail::GraphEditor(*graph_).edit(id) = std::move(t);
}

// The number is rounded to the tensor's type; an integer type keeps integers exact.
bool GraphReader::read_scalar(const Value& v, const Place& at, TensorDesc& t) {
  double value = 0;
  if (!fields_.read(v, at, value)) return false;
  const DataType type = t.data_type == DataType::none ? graph_->options().io : t.data_type;
  t.has_value = true;
  t.value = round_to(type, value);
  const bool in_range = t.value >= -0x1p63 && t.value < 0x1p63;
  t.integer_value = in_range ? static_cast<std::int64_t>(t.value) : 0;
  if (type == DataType::i64) {
    if (v.kind == Kind::integer && v.fits)
      t.integer_value = v.integer;
    else if (!in_range && !std::isnan(t.value))
      t.integer_value = t.value > 0 ? INT64_MAX : INT64_MIN;
    t.value = static_cast<double>(t.integer_value);
  }
  if (!t.dim_known) {
    t.dim = {1};
    t.dim_known = true;
  }
  return true;
}

// A scalar whose value comes with each execute(): an input of one element.
bool GraphReader::read_bound_scalar(const Value& v, const Place& at, TensorDesc& t) {
  if (t.has_value)
    return fields_.fail(Rule::tensor_value, at.with("pass_by_value"), v.line, "a value as well", "",
                        "leave value out where the number comes with each execute()");
  t.bind_value();
  if (t.dim_known) return true;
  t.dim = {1};
  return t.dim_known = true;
}

void GraphReader::read_nodes() {
  errors_before_nodes_ = fields_.errors().size();
  const auto& list = document_.find("nodes")->items;
  nodes_.reserve(list.size());
  for (std::size_t i = 0; i < list.size(); ++i) read_node(list[i], i);
}

// What a node with an error would have produced is not to be missed by others.
void GraphReader::poison_outputs(const Value& node) {
  const Value* outputs = node.find("outputs");
  if (!outputs) return;
  for (const auto& m : outputs->members)
    if (m.value.kind == Kind::string)
      poisoned_[static_cast<std::size_t>(tensor_named(m.value.text, m.value.line))] = true;
}

void GraphReader::read_node(const Value& v, std::size_t index) {
  PendingNode& n = nodes_.emplace_back();
  n.line = v.line;
  n.label = "#" + std::to_string(index);
  const std::size_t before = fields_.failures();
  read_fields(v, n);
  n.ok = fields_.failures() == before;
  if (!n.ok) poison_outputs(v);
}

void GraphReader::read_fields(const Value& v, PendingNode& n) {
  if (!fields_.is(Kind::object, v, {n.label, "", ""})) return;
  const Value* name = v.find("name");
  if (name && fields_.read(*name, {n.label, "", "name"}, n.options.name) && !name->text.empty())
    n.label = name->text;
  const Value* op = fields_.required(v, {n.label, "", ""}, "op", Rule::json_field);
  if (!op || !fields_.is(Kind::string, *op, {n.label, "", "op"})) return;
  const auto kind = op_from_name(op->text);
  if (!kind) {
    std::vector<std::string_view> known;
    for (const auto& row : kOps)
      if (!row.internal) known.push_back(row.name);
    fields_.fail(Rule::attribute_value, {n.label, "", "op"}, op->line, op->describe(),
                 Fields::one_of(known), meant_operation(op->text, known));
    return;
  }
  n.op = *kind;
  if (n.options.name.empty()) n.label = op->text + " " + n.label;
  if (const Value* type = v.find("compute_data_type"))
    fields_.read(*type, {n.label, "", "compute_data_type"}, n.options.compute, true);
  n.attributes = default_attributes(n.op);
  read_attributes(v, n);
  read_ports(v, n, "inputs");
  read_ports(v, n, "outputs");
}

void GraphReader::read_attributes(const Value& v, PendingNode& n) {
  std::vector<std::string_view> known = {"op", "name", "inputs", "outputs", "compute_data_type"};
  const Place at{n.label, "", ""};
  if (auto* p = std::get_if<PointwiseAttributes>(&n.attributes)) {
    const Value* mode = v.find("mode");  // which attributes there are hangs on it
    if (!mode) {
      fields_.fail(Rule::attribute_missing, at.with("mode"), v.line, "", "",
                   "add a mode such as add or relu_fwd");
      return;
    }
    if (!fields_.read(*mode, at.with("mode"), p->mode)) return;
  }
  std::visit(
      [&](auto& attributes) {
        document_fields(attributes, [&](const char* field, auto& member) {
          known.push_back(field);
          if (const Value* given = v.find(field)) fields_.read(*given, at.with(field), member);
        });
      },
      n.attributes);
  for (const auto& m : v.members) {
    if (std::ranges::find(known, m.key) != known.end()) continue;
    std::string fix = said_elsewhere(n.op, m.key);
    if (fix.empty()) continue;
    fields_.fail(Rule::attribute_unknown, at.with(m.key), m.value.line, m.value.describe(), "",
                 std::move(fix));
    known.push_back(m.key);
  }
  fields_.only(v, at, known, Rule::attribute_unknown);
}

void GraphReader::read_ports(const Value& v, PendingNode& n, std::string_view side) {
  const bool in = side == "inputs";
  const auto& row = info(n.op);
  auto& ids = in ? n.inputs : n.outputs;
  const bool open_ended = in && row.variadic;
  ids.assign(open_ended ? 0 : (in ? row.inputs : row.outputs).size(), kNoTensor);
  const Value* ports = v.find(side);
  if (!ports || !fields_.is(Kind::object, *ports, {n.label, "", std::string(side)})) return;
  if (open_ended) ids.assign(ports->members.size(), kNoTensor);

  for (const auto& m : ports->members) {
    const Place at{n.label, "", "port " + m.key};
    const int port = in ? input_index(n.op, m.key) : output_index(n.op, m.key);
    if (port < 0 || port >= static_cast<int>(ids.size())) {
      std::vector<std::string_view> known;
      for (const auto& p : in ? row.inputs : row.outputs) known.push_back(p.name);
      fields_.fail(Rule::port_unknown, at, m.value.line, std::string(side) + "." + m.key,
                   open_ended ? "IN_0, IN_1, ... without gaps" : Fields::one_of(known),
                   suggestion(m.key, known));
      continue;
    }
    if (!fields_.is(Kind::string, m.value, at)) continue;
    const TensorId id = tensor_named(m.value.text, m.value.line);
    ids[static_cast<std::size_t>(port)] = id;
    if (in) continue;
    int& maker = maker_[static_cast<std::size_t>(id)];
    const int self = static_cast<int>(nodes_.size()) - 1;
    if (maker >= 0)
      fields_.fail(
          Rule::graph_producer, {n.label, m.value.text, "port " + m.key}, m.value.line,
          "nodes '" + nodes_[static_cast<std::size_t>(maker)].label + "' and '" + n.label + "'",
          "one producer");
    else
      maker = self;
  }
}

// Finds the producer of every tensor that is read, and the order of the nodes: the document's where
// that can be executed, else the first that can (Kahn's algorithm).
bool GraphReader::connect(std::vector<int>& order) {
  for (std::size_t t = 0; t < maker_.size(); ++t) {
    if (!declared_[t] || maker_[t] >= 0 || poisoned_[t]) continue;
    const auto& desc = (*graph_)[static_cast<TensorId>(t)];
    if (desc.dim_known && !desc.output) continue;
    unproduced_.push_back(static_cast<TensorId>(t));
    poisoned_[t] = true;
  }
  std::vector<int> missing(nodes_.size(), 0);
  std::vector<std::vector<int>> readers(nodes_.size());
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    auto& n = nodes_[i];
    for (std::size_t p = 0; p < n.inputs.size(); ++p) {
      const TensorId t = n.inputs[p];
      if (t < 0) continue;
      const int maker = maker_[static_cast<std::size_t>(t)];
      if (maker >= 0) {
        readers[static_cast<std::size_t>(maker)].push_back(static_cast<int>(i));
        ++missing[i];
      } else if (!declared_[static_cast<std::size_t>(t)] &&
                 !poisoned_[static_cast<std::size_t>(t)]) {
        const std::string port = info(n.op).variadic ? "IN_" + std::to_string(p)
                                                     : std::string(info(n.op).inputs[p].name);
        const std::string near = nearest_tensor(t);
        n.ok = fields_.fail(Rule::tensor_dim_missing, {n.label, (*graph_)[t].name, "port " + port},
                            n.line, "a tensor that is not in 'tensors' and that no node produces",
                            "", near.empty() ? "declare it in 'tensors' with dim or value" : near);
        poisoned_[static_cast<std::size_t>(t)] = true;
      }
    }
  }
  std::priority_queue<int, std::vector<int>, std::greater<>> ready;
  for (std::size_t i = 0; i < nodes_.size(); ++i)
    if (missing[i] == 0) ready.push(static_cast<int>(i));
  while (!ready.empty()) {
    const int i = ready.top();
    ready.pop();
    order.push_back(i);
    for (int r : readers[static_cast<std::size_t>(i)])
      if (--missing[static_cast<std::size_t>(r)] == 0) ready.push(r);
  }
  if (order.size() == nodes_.size()) return true;
  report_cycle(missing);
  return false;
}

// Walks back from a node that waits to one that was met before: those between are the cycle.
void GraphReader::report_cycle(const std::vector<int>& waiting) {
  const auto waits = [&](int i) { return waiting[static_cast<std::size_t>(i)] > 0; };
  int at = 0;
  while (!waits(at)) ++at;
  std::vector<int> met(nodes_.size(), -1);
  std::vector<std::pair<int, TensorId>> path;  // a node and the tensor it waits for
  while (met[static_cast<std::size_t>(at)] < 0) {
    met[static_cast<std::size_t>(at)] = static_cast<int>(path.size());
    for (TensorId t : nodes_[static_cast<std::size_t>(at)].inputs) {
      const int maker = t < 0 ? -1 : maker_[static_cast<std::size_t>(t)];
      if (maker < 0 || !waits(maker)) continue;
      path.emplace_back(at, t);
      at = maker;
      break;
    }
  }
  path.erase(path.begin(), path.begin() + met[static_cast<std::size_t>(at)]);
  std::reverse(path.begin(), path.end());
  std::string seen;
  constexpr std::size_t most = 16;  // of the cycle that are named
  for (std::size_t i = 0; i < std::min(path.size(), most); ++i)
    seen += "tensor '" + (*graph_)[path[i].second].name + "' -> node '" +
            nodes_[static_cast<std::size_t>(path[i].first)].label + "' -> ";
  seen += path.size() > most ? "..." : "tensor '" + (*graph_)[path[0].second].name + "'";
  const auto& first = nodes_[static_cast<std::size_t>(path[0].first)];
  fields_.fail(Rule::graph_cycle, {first.label, (*graph_)[path[0].second].name, ""}, first.line,
               seen, "a graph without cycles");
}

// Takes over what the graph reported since; the graph numbers its nodes by another order.
bool GraphReader::take_reports(std::size_t before, const std::string& node) {
  const auto& all = graph_->diagnostics();
  for (std::size_t i = before; i < all.size(); ++i) {
    fields_.errors().push_back(all[i]);
    if (!node.empty()) fields_.errors().back().node = node;
  }
  return all.size() > before;
}

void GraphReader::add(PendingNode& n) {
  for (TensorId t : n.inputs) n.ok &= t < 0 || !poisoned_[static_cast<std::size_t>(t)];
  for (TensorId t : n.outputs) n.ok &= t < 0 || !poisoned_[static_cast<std::size_t>(t)];
  if (n.ok) {
    const std::size_t before = graph_->diagnostics().size();
    detail::GraphEditor(*graph_).add(n.op, std::move(n.attributes), n.inputs, n.outputs, n.options,
                                     where(n.line));
    n.ok = !take_reports(before, n.label);
  }
  if (n.ok) return;
  for (TensorId t : n.outputs)
    if (t >= 0) poisoned_[static_cast<std::size_t>(t)] = true;
}

void GraphReader::check_whole() {
  // A node with an error may be the one that should have produced the tensor.
  if (fields_.errors().size() == errors_before_nodes_)
    for (TensorId t : unproduced_) {
      const auto& desc = (*graph_)[t];
      fields_.fail(desc.output ? Rule::tensor_role : Rule::tensor_dim_missing,
                   {"", desc.name, desc.output ? "output" : ""}, desc.where.line,
                   desc.output ? "a tensor that no node produces" : "", "",
                   desc.output ? "" : "no node produces it: give it dim or value");
    }
  const bool clean = fields_.errors().empty();
  const auto all = graph_->check();
  for (std::size_t i = graph_->diagnostics().size(); i < all.size(); ++i) {
    const auto found = ids_.find(all[i].tensor);
    const bool follows = found != ids_.end() && poisoned_[static_cast<std::size_t>(found->second)];
    const bool needless = !clean || !needs_output_;
    if (follows || (needless && all[i].rule == Rule::graph_no_output)) continue;
    fields_.errors().push_back(all[i]);
    fields_.errors().back().file = fields_.file();
    if (all[i].rule == Rule::graph_no_output)
      fields_.errors().back().fix = "give the tensor of a result \"output\": true";
  }
}

}  // namespace

Result<Shared<Graph>> read_graph(const Value& document, std::string_view file, bool needs_output) {
  return GraphReader(document, file, needs_output).read();
}

}  // namespace sinter::json

namespace sinter {

Result<Shared<Graph>> graph_from_json(std::string_view text, std::string_view file) {
  auto document = json::parse(text, file);
  SINTER_TRY(document);
  return json::read_graph(*document, file);
}

}  // namespace sinter
