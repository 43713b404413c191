// Inline members of Graph. Included by graph.hpp.
#pragma once
#include "sinter/base/name_set.hpp"
#include "sinter/ops/shape_rules.hpp"
#include "sinter/ops/shapes.hpp"

namespace sinter {

inline std::string Graph::label(const Node& n) const {
  if (!n.name.empty()) return n.name;
  // Its place among the graph's nodes, or behind them where it is none of these yet.
  const std::less<const Node*> before;
  const Node* const first = nodes_.data();
  const bool ours = !before(&n, first) && before(&n, first + nodes_.size());
  return detail::text(
      {sinter::name(n.op), " #", ours ? static_cast<std::size_t>(&n - first) : nodes_.size()});
}

inline std::string Graph::label(TensorId id) const {
  return (*this)[id].name.empty() ? detail::text({"#", id}) : (*this)[id].name;
}

inline std::optional<TensorId> Graph::find(std::string_view tensor_name) const {
  for (std::size_t i = 0; i < tensors_.size(); ++i)
    if (tensors_[i].name == tensor_name) return static_cast<TensorId>(i);
  return std::nullopt;
}

inline Diagnostic Graph::about(Rule rule, const TensorDesc& t) {
  Diagnostic d{};
  d.rule = rule;
  d.tensor = t.name;
  d.file = t.where.file;
  d.line = t.where.line;
  return d;
}

inline bool Graph::valid_tensor(const TensorDesc& t, bool written) {
  const auto fail = [&](Rule rule, std::string_view attribute, std::string_view seen,
                        std::string_view allowed) {
    Diagnostic d = about(rule, t);
    d.attribute = attribute;
    d.seen = seen;
    d.allowed = allowed;
    report(std::move(d));
    return false;
  };
  if (t.data_type == DataType::tf32)
    return fail(Rule::tensor_data_type, "data_type", "tf32", "a storage type; tf32 only computes");
  if (t.alignment <= 0 || (t.alignment & (t.alignment - 1)))
    return fail(Rule::tensor_alignment, "alignment", std::to_string(t.alignment), "a power of two");
  if (t.has_value && t.dim_known)
    for (auto d : t.dim)
      if (d != 1) return fail(Rule::tensor_value, "dim", to_string(t.dim), "dims that are all 1");
  if (!t.dim_known) return true;
  if (t.dim.size() < 1 || t.dim.size() > max_rank_)
    return fail(Rule::tensor_rank, "dim", detail::text({t.dim.size(), " dims"}), "1 to 8 dims");
  // Elements in 2^60 bytes; of what has no type yet, the widest that it may get.
  const auto bytes = [](DataType type) {
    return type == DataType::none ? 1 : std::max(info(type).bytes, 1);
  };
  const std::int64_t most =
      (std::int64_t{1} << 60) / (t.data_type != DataType::none
                                     ? bytes(t.data_type)
                                     : std::max(bytes(options_.io), bytes(options_.intermediate)));
  std::int64_t n = 1;
  for (auto d : t.dim) {
    if (d < 0 || d > detail::ShapeRules::kMaxExtent)
      return fail(Rule::tensor_extent, "dim", to_string(t.dim), "extents from 0 to 2^40");
    if (d > 0 && n > most / d)
      return fail(Rule::tensor_size, "dim", to_string(t.dim), "at most 2^60 bytes");
    n *= d > 0 ? d : 1;
  }
  if (t.stride.empty()) return true;
  if (t.stride.size() != t.dim.size())
    return fail(Rule::tensor_stride, "stride", to_string(t.stride),
                detail::text({t.dim.size(), " entries, one a dim"}));
  std::int64_t last = 0;
  for (int i = 0; i < t.dim.size(); ++i) {
    const auto s = t.stride[i], reach = t.dim[i] - 1;
    if (s < 0)
      return fail(Rule::tensor_stride, "stride", to_string(t.stride), "no negative stride");
    if (reach > 0 && s > (most - last) / reach)
      return fail(Rule::tensor_size, "stride", to_string(t.stride), "a span of at most 2^60 bytes");
    if (reach > 0) last += s * reach;
  }
  if (written) {  // sorted by stride, each dim must step over all that the smaller ones reach
    Dims order;
    for (int i = 0; i < t.dim.size(); ++i)
      if (t.dim[i] > 1) {
        int at = 0;
        while (at < order.size() && t.stride[static_cast<int>(order[at])] < t.stride[i]) ++at;
        order.insert(at, i);
      }
    std::int64_t reach = 0;
    for (auto i : order) {
      const auto s = t.stride[static_cast<int>(i)];
      if (s <= reach && n > 0)
        return fail(Rule::tensor_overlap, "stride", to_string(t.stride),
                    "strides that give each element its own place");
      reach += s * (t.dim[static_cast<int>(i)] - 1);
    }
  }
  return true;
}

inline TensorId Graph::declare(TensorDesc desc) {
  if (desc.has_value && !desc.dim_known) {
    desc.dim = {1};
    desc.dim_known = true;
  }
  tensors_.push_back(std::move(desc));
  return static_cast<TensorId>(tensors_.size()) - 1;
}

inline Tensor Graph::tensor(TensorOptions options, Where where) {
  TensorDesc t;
  t.name = std::move(options.name);
  t.dim = options.dim;
  t.dim_known = !options.dim.empty();
  t.stride = options.stride;
  t.data_type = options.data_type;
  t.uid = options.uid;
  t.alignment = options.alignment;
  t.constant = options.constant;
  t.where = where;
  if (!t.dim_known) {
    Diagnostic d{};
    d.rule = Rule::tensor_dim_missing;
    d.tensor = t.name;
    d.fix = "give it dim, or a value";
    d.file = where.file;
    d.line = where.line;
    report(std::move(d));
    return {};
  }
  if (!valid_tensor(t, false)) return {};
  return {this, declare(std::move(t))};
}

inline Tensor Graph::tensor(std::string name, const Shape& shape, DataType type, Where where) {
  TensorOptions options;
  options.name = std::move(name);
  options.dim = shape.dim;
  options.stride = shape.stride;
  options.data_type = type;
  return tensor(std::move(options), where);
}

inline Tensor Graph::scalar_input(std::string name, DataType type, Where where) {
  const Tensor t = scalar(0, type, std::move(name), where);
  if (t) edit(t.id()).bind_value();
  return t;
}

inline Tensor Graph::scalar(double value, DataType type, std::string name, Where where) {
  TensorDesc t;
  t.name = std::move(name);
  t.data_type = type;
  t.has_value = true;
  t.value = value;
  t.integer_value = value > -0x1p63 && value < 0x1p63 ? static_cast<std::int64_t>(value) : 0;
  t.where = where;
  if (!valid_tensor(t, false)) return {};
  return {this, declare(std::move(t))};
}

inline Tensor Graph::scalar_integer(std::int64_t value, DataType type, std::string name,
                                    Where where) {
  Tensor t = scalar(static_cast<double>(value), type, std::move(name), where);
  if (t) edit(t.id()).integer_value = value;
  return t;
}

inline Tensor Graph::output(Tensor t, std::string name, TensorOptions options, Where where) {
  Diagnostic d{};
  d.tensor = name;
  d.file = where.file;
  d.line = where.line;
  if (!t) {
    // A poisoned tensor follows from a mistake that is reported; an absent one is the mistake.
    if (!t.missing_option() && !diagnostics_.empty()) return {};
    d.rule = t.missing_option() ? Rule::tensor_absent : Rule::tensor_foreign;
    if (t.missing_option()) d.fix = t.missing_option();
    report(std::move(d));
    return {};
  }
  if (t.graph() != this || !t.known()) {
    d.rule = Rule::tensor_foreign;
    report(std::move(d));
    return {};
  }
  auto& desc = edit(t.id());
  if (desc.producer < 0) {
    d.rule = Rule::tensor_role;
    d.seen = "a tensor that no node produces";
    d.fix = "pass it through identity()";
    report(std::move(d));
    return {};
  }
  if (desc.output && !name.empty() && name != desc.name) {
    d.rule = Rule::tensor_role;
    d.seen = detail::text({"an output already, named '", desc.name, "'"});
    d.fix = "pass it through identity()";
    report(std::move(d));
    return {};
  }
  if (!options.dim.empty() && options.dim != desc.dim) {
    d.rule = Rule::node_output_dim;
    d.seen = to_string(options.dim);
    d.allowed = to_string(desc.dim);
    report(std::move(d));
    return {};
  }
  // An untyped result has the type of its port, or else the io type.
  const DataType of_port = port_type(t.id());
  const DataType type = options.data_type != DataType::none ? options.data_type
                        : desc.data_type != DataType::none  ? desc.data_type
                        : of_port != DataType::none         ? of_port
                                                            : options_.io;
  if (!keeps_kind(t.id(), type, where)) return {};
  desc.output = true;
  if (!name.empty()) desc.name = std::move(name);
  if (options.data_type != DataType::none) desc.data_type = options.data_type;
  if (!options.stride.empty()) desc.stride = options.stride;
  if (options.uid) desc.uid = options.uid;
  if (options.alignment != 16) desc.alignment = options.alignment;
  if (options.alias)
    desc.alias = options.alias.graph() == this ? options.alias.id() : kForeignTensor;
  desc.where = where;
  return valid_tensor(TensorDesc(desc), true) ? t : Tensor{};
}

inline bool Graph::keeps_kind(TensorId t, DataType type, const Where& where) {
  if (!(*this)[t].read || is_floating(this->type(t)) == is_floating(type)) return true;
  Diagnostic d{};
  d.rule = Rule::tensor_data_type;
  d.tensor = label(t);
  d.seen = detail::text({sinter::name(type), " after a node has read it"});
  d.allowed = is_floating(type) ? "an integer type" : "a floating-point type";
  d.fix = "state the type before the tensor is read";
  d.file = where.file;
  d.line = where.line;
  report(std::move(d));
  return false;
}

inline Tensor Tensor::named(std::string name) const {
  if (!known()) return *this;
  TensorDesc& t = graph_->edit(id_);
  if (t.producer >= 0)
    if (Node& n = graph_->edit_node(t.producer); n.name.empty()) n.name = name;
  t.name = std::move(name);
  return *this;
}

inline Tensor Tensor::of_rank(int rank, Where where) const {
  if (!known()) return *this;
  TensorDesc& t = graph_->edit(id_);
  if (t.has_value && rank >= 1 && rank <= kMaxRank) {
    t.dim = Dims::filled(rank, 1);
    t.stride = {};
    return *this;
  }
  Diagnostic d{};
  d.rule = Rule::tensor_rank;
  d.tensor = graph_->label(id_);
  d.seen = t.has_value ? detail::text({rank, " dims"}) : "a tensor in memory";
  d.allowed = t.has_value ? "1 to 8 dims" : "a number passed by value";
  d.file = where.file;
  d.line = where.line;
  graph_->report(std::move(d));
  return *this;
}

inline Tensor Tensor::type(DataType type, Where where) const {
  if (!known()) return *this;
  TensorDesc& t = graph_->edit(id_);
  if (!graph_->keeps_kind(id_, type, where)) return *this;
  t.data_type = type;
  graph_->valid_tensor(TensorDesc(t), t.producer >= 0);
  return *this;
}

inline std::vector<TensorId> Graph::add(OpKind op, Attributes attributes,
                                        std::vector<TensorId> inputs, std::vector<TensorId> outputs,
                                        NodeOptions options, Where where) {
  if (op >= OpKind::last_) {
    report({.rule = Rule::attribute_value,
            .attribute = "op",
            .seen = std::to_string(static_cast<int>(op)),
            .allowed = "an operation",
            .file = where.file,
            .line = where.line});
    return std::vector<TensorId>(outputs.size(), kNoTensor);
  }
  Node node{op,
            std::move(attributes),
            std::move(options.name),
            std::move(inputs),
            std::move(outputs),
            options.compute,
            where};
  const auto& op_info = info(op);
  if (!op_info.variadic) node.inputs.resize(op_info.inputs.size(), kNoTensor);
  node.outputs.resize(op_info.outputs.size(), kNoTensor);
  const std::vector<TensorId> poisoned(node.outputs.size(), kNoTensor);
  const std::size_t before = diagnostics_.size();
  detail::ShapeRules rules(*this, node);

  for (int i = 0; i < rules.inputs(); ++i) {
    const TensorId t = node.inputs[static_cast<std::size_t>(i)];
    const bool required = op_info.variadic || op_info.inputs[static_cast<std::size_t>(i)].required;
    if (t == kNoTensor) {
      if (required) rules.fail(Rule::port_missing, rules.input_name(i), "", "");
    } else if (t < 0 || t >= static_cast<TensorId>(tensors_.size())) {
      rules.fail(Rule::tensor_foreign, rules.input_name(i), "", "");
    } else if (!(*this)[t].dim_known) {
      rules.fail(Rule::tensor_dim_missing, rules.input_name(i),
                 detail::text({"tensor '", label(t), "'"}), "");
    }
  }
  for (std::size_t i = 0; i < node.outputs.size(); ++i) {
    const TensorId t = node.outputs[i];
    if (t == kNoTensor && op_info.outputs[i].required)
      rules.fail(Rule::port_missing, rules.output_name(static_cast<int>(i)), "", "");
    if (t < 0) continue;
    const auto& desc = (*this)[t];
    const std::string seen = detail::text({"tensor '", label(t), "'"});
    if (desc.producer >= 0)
      rules.fail(Rule::graph_producer, rules.output_name(static_cast<int>(i)), seen, "");
    else if (desc.has_value)
      rules.fail(Rule::tensor_value, rules.output_name(static_cast<int>(i)), seen, "");
    else if (desc.read)
      rules.fail(Rule::graph_cycle, rules.output_name(static_cast<int>(i)), seen, "");
    for (std::size_t j = 0; j < i; ++j)
      if (node.outputs[j] == t)
        rules.fail(Rule::graph_producer, rules.output_name(static_cast<int>(i)), seen, "");
  }
  if (compute(node) != DataType::tf32 && compute(node) != DataType::f32 &&
      compute(node) != DataType::f64 && compute(node) != DataType::f16 &&
      compute(node) != DataType::bf16 && compute(node) != DataType::i32 &&
      compute(node) != DataType::i64)
    rules.fail(Rule::attribute_value, "compute_data_type", sinter::name(compute(node)),
               "f64, f32, tf32, f16, bf16, i32 or i64");
  if (static_cast<int>(node.attributes.index()) != op_info.attributes)
    rules.fail(Rule::attribute_unknown, "attributes", "those of another operation", "");
  if (diagnostics_.size() > before) return poisoned;
  if (!detail::infer_shapes(rules) || diagnostics_.size() > before) return poisoned;

  const auto id = static_cast<NodeId>(nodes_.size());
  for (std::size_t i = 0; i < node.outputs.size(); ++i) {
    TensorId& t = node.outputs[i];
    if (t == kNoTensor) continue;
    const Dims& dim = rules.inferred(static_cast<int>(i));
    if (t == kNewTensor) {
      t = declare({});
      edit(t).where = where;
    }
    auto& desc = edit(t);
    if (desc.dim_known && desc.dim != dim) {
      rules.fail(Rule::node_output_dim,
                 detail::text({rules.output_name(static_cast<int>(i)), " tensor '", label(t), "'"}),
                 to_string(desc.dim), to_string(dim), "leave dim out, it is inferred");
      return poisoned;
    }
    desc.dim = dim;
    desc.dim_known = true;
    if (!valid_tensor(TensorDesc(desc), true)) return poisoned;
  }
  // Only now that the node will exist: a producer is looked up by whoever names its tensors.
  for (TensorId t : node.outputs)
    if (t != kNoTensor) edit(t).producer = id;
  for (TensorId t : node.inputs)
    if (t >= 0) edit(t).read = true;
  nodes_.push_back(std::move(node));
  return nodes_.back().outputs;
}

inline Diagnostics Graph::check() {
  // Names: tensors that have none are called after their producer.
  const std::size_t most = tensors_.size();
  detail::NameSet names(most), repeated(most), uids(most);
  for (const auto& t : tensors_)
    if ((t.named || !t.name.empty()) && !names.insert(t.name)) repeated.insert(t.name);
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    auto& t = tensors_[i];
    if (t.named || !t.name.empty()) continue;
    std::string base = "value";
    if (t.producer >= 0) {
      const auto& n = nodes_[static_cast<std::size_t>(t.producer)];
      const auto* p = std::get_if<PointwiseAttributes>(&n.attributes);
      base = !n.name.empty() ? n.name : std::string(p ? sinter::name(p->mode) : sinter::name(n.op));
    }
    t.name = detail::text({base, "_", i});
    while (names.contains(t.name)) t.name += "_";
  }

  Diagnostics all = diagnostics_;
  for (const auto& [attribute, type] :
       {std::pair{"io_data_type", options_.io},
        std::pair{"intermediate_data_type", options_.intermediate}}) {
    if (type > DataType::none && type < DataType::tf32) continue;
    Diagnostic d{};
    d.rule = Rule::tensor_data_type;
    d.attribute = attribute;
    d.seen = type == DataType::tf32 ? "tf32" : "none";
    d.allowed = "a storage type; tf32 only computes";
    all.push_back(std::move(d));
  }
  const auto report_tensor = [&](Rule rule, const TensorDesc& t) { all.push_back(about(rule, t)); };
  bool any_output = false;
  std::vector<int> aliases(tensors_.size());
  for (const auto& t : tensors_)
    if (t.alias >= 0 && t.alias < static_cast<TensorId>(tensors_.size()))
      ++aliases[static_cast<std::size_t>(t.alias)];
  for (const auto& t : tensors_) {
    any_output |= t.output;
    if (t.alias != kNoTensor) check_alias(t, aliases, all);
    if (repeated.contains(t.name)) report_tensor(Rule::tensor_name, t);
    if (t.uid && !uids.insert(std::to_string(*t.uid))) report_tensor(Rule::tensor_uid, t);
    if (t.output && t.producer < 0) {
      report_tensor(Rule::tensor_role, t);
      all.back().seen = "a tensor that no node produces";
    }
    // One that nobody named is a result of a node that was refused, and reported with that.
    if (t.producer < 0 && !t.has_value && !t.dim_known && (t.named || diagnostics_.empty()))
      report_tensor(Rule::tensor_dim_missing, t);
  }
  if (!any_output && all.empty()) {
    Diagnostic d{};
    d.rule = Rule::graph_no_output;
    d.fix = "mark a result with Graph::output";
    all.push_back(std::move(d));
  }
  return all;
}

// Both lie in memory alike. `aliases`: how many outputs name each tensor.
inline void Graph::check_alias(const TensorDesc& t, const std::vector<int>& aliases,
                               Diagnostics& all) const {
  const auto self = static_cast<TensorId>(&t - tensors_.data());
  const auto memory = [&](TensorId id) {
    return detail::text(
        {name(type(id)), " ", to_string((*this)[id].dim), " with strides ", to_string(stride(id))});
  };
  const auto alike = [&](TensorId a, TensorId b) {
    return type(a) == type(b) && (*this)[a].dim == (*this)[b].dim && stride(a) == stride(b);
  };
  const bool known = t.alias >= 0 && t.alias < static_cast<TensorId>(tensors_.size());
  std::string seen, allowed = "an input of the graph";
  if (!t.output)
    seen = "no output of the graph", allowed = "an alias of an output alone";
  else if (!known)
    seen = "no tensor of the graph";
  else if (!is_input(t.alias) || (*this)[t.alias].has_value)
    seen = detail::text({"'", (*this)[t.alias].name, "', no input"});
  else if (aliases[static_cast<std::size_t>(t.alias)] > 1)
    seen = detail::text({"'", (*this)[t.alias].name, "', which another output names, too"}),
    allowed = "an input for each output that names one";
  else if (!alike(t.alias, self))
    seen = detail::text({"'", (*this)[t.alias].name, "', ", memory(t.alias)}),
    allowed = memory(self);
  else
    return;
  Diagnostic d = about(Rule::tensor_alias, t);
  d.attribute = "alias";
  d.seen = std::move(seen);
  d.allowed = std::move(allowed);
  all.push_back(std::move(d));
}

inline Diagnostics Graph::notes() const {
  Diagnostics all;
  if (!diagnostics_.empty()) return all;  // what a refused node would read is not unread
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    const TensorDesc& t = tensors_[i];
    if (t.read || !is_input(static_cast<TensorId>(i))) continue;
    Diagnostic d = about(Rule::tensor_unused, t);
    d.tensor = label(static_cast<TensorId>(i));
    all.push_back(std::move(d));
  }
  for (const Node& n : nodes_) {
    const auto* const a = std::get_if<SdpaAttributes>(&n.attributes);
    if (!a || shapes::reads_lengths(*a)) continue;
    const auto& ports = n.op == OpKind::sdpa ? shapes::kSdpaPorts : shapes::kSdpaBackwardPorts;
    for (int port : {ports.seq_q, ports.seq_kv}) {
      const TensorId t = n.inputs[static_cast<std::size_t>(port)];
      if (t == kNoTensor) continue;
      Diagnostic d = about(Rule::sdpa_unread, (*this)[t]);
      d.node = n.name;
      d.tensor = label(t);
      d.fix = "set padding_mask, or disconnect it";
      all.push_back(std::move(d));
    }
  }
  return all;
}

}  // namespace sinter
