// Plan files back to plan data. A damaged or altered file must end in a diagnostic and never in a
// launch, so nothing in it is believed before it was checked.
#include <algorithm>
#include <map>
#include <set>

#include "json/base64.hpp"
#include "json/fields.hpp"
#include "json/graph_json.hpp"
#include "json/plan_json.hpp"
#include "json/plan_writer.hpp"
#include "plan/kernel_problem.hpp"
#include "plan/map_problem.hpp"
#include "sinter/compile.hpp"
#include "sinter/json.hpp"
#include "target/device_model.hpp"
#include "target/target.hpp"

namespace sinter::json {
namespace {

constexpr std::size_t kMaxSource = std::size_t{4} << 20, kMaxMachineCode = std::size_t{256} << 20;
constexpr std::size_t kMaxEntry = 1024;
constexpr std::size_t kMaxArguments = 4096;
constexpr std::size_t kMaxMaps = 256;  // more do not fit in an argument struct
constexpr std::int64_t kMaxWorkspace = std::int64_t{1} << 50;

bool is_identifier(std::string_view s) {
  const auto letter = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  };
  return !s.empty() && s.size() <= kMaxEntry && letter(s[0]) &&
         std::all_of(s.begin(), s.end(),
                     [&](char c) { return letter(c) || (c >= '0' && c <= '9'); });
}

class PlanReader {
 public:
  PlanReader(const Value& document, std::string_view file)
      : document_(document), file_(file), fields_(file) {}

  Result<PlanData> read() {
    if (read_head() && read_graph_and_tensors() && read_buffers() && read_kernels() && read_cuts())
      check_hash();
    if (!fields_.errors().empty()) return std::move(fields_.errors());
    return std::move(plan_);
  }

 private:
  bool read_head();
  bool read_graph_and_tensors();
  bool read_tensor(const Value& v, const std::string& at);
  bool matches_graph(PlanTensor& t, unsigned line);  // takes over what the graph alone says
  bool fits_kept(const PlanTensor& t, unsigned line);
  bool read_buffers();
  bool read_kernels();
  bool read_access(const Value& v, const std::string& at, PlanKernel& k);
  bool read_kernel(const Value& v, const std::string& at);
  bool read_map(const Value& v, const std::string& at, PlanKernel& k);
  bool read_argument(const Value& v, const std::string& at, PlanKernel& k);
  bool read_machine_code(const Value& v, const std::string& at, PlanKernel& k);
  bool read_cuts();
  void check_hash();

  bool fail(const std::string& at, unsigned line, std::string seen, std::string allowed) {
    return fields_.fail(Rule::plan_format, {"", "", at}, line, std::move(seen), std::move(allowed));
  }
  static std::string path(const std::string& at, std::string_view key) {
    return (at.empty() ? "" : at + ".") + std::string(key);
  }
  // The object's members, every one of `keys` and no other; those `optional` may be absent.
  bool object(const Value& v, const std::string& at, std::span<const std::string_view> keys,
              std::initializer_list<std::string_view> optional = {}) {
    if (!fields_.is(Kind::object, v, {"", "", at}) || !fields_.only(v, {"", "", at}, keys))
      return false;
    for (auto key : keys)
      if (std::find(optional.begin(), optional.end(), key) == optional.end() &&
          !fields_.required(v, {"", "", at}, key, Rule::json_field))
        return false;
    return true;
  }
  template <class T>
  bool field(const Value& object, const std::string& at, std::string_view key, T& out) {
    return fields_.read(*object.find(key), {"", "", path(at, key)}, out);
  }
  bool range(const Value& object, const std::string& at, std::string_view key, std::int64_t least,
             std::int64_t most, std::int64_t& out) {
    if (!field(object, at, key, out)) return false;
    if (out >= least && out <= most) return true;
    return fail(path(at, key), object.find(key)->line, std::to_string(out),
                std::to_string(least) + " to " + std::to_string(most));
  }
  const std::vector<Value>* list(std::string_view key) {
    const Value* v = document_.find(key);
    return fields_.is(Kind::array, *v, {"", "", std::string(key)}) ? &v->items : nullptr;
  }

  // read(item, "at[i]") of each item, until one is wrong.
  template <class Read>
  static bool each(const std::vector<Value>& items, const std::string& at, const Read& read) {
    for (std::size_t i = 0; i < items.size(); ++i)
      if (!read(items[i], at + "[" + std::to_string(i) + "]")) return false;
    return true;
  }

  const Value& document_;
  std::string_view file_;
  Fields fields_;
  Shared<Graph> graph_;
  std::map<std::string_view, TensorId> ids_;
  PlanData plan_;
  std::size_t shared_code_ = 0;  // bytes
};

bool PlanReader::read_head() {
  if (!fields_.is(Kind::object, document_, {})) return false;
  const Value* format = document_.find("format");
  if (!format || format->kind != Kind::string || format->text != kPlanFormat)
    return fail("format", document_.line, format ? format->describe() : "no such field",
                "'sinter.plan'");
  const Value* version = document_.find("version");
  if (!version || version->kind != Kind::integer || version->integer != kPlanVersion)
    return fail("version", version ? version->line : document_.line,
                version ? version->describe() : "no such field", std::to_string(kPlanVersion));
  static constexpr std::string_view keys[] = {
      "format",          "version", "hash",    "library", "name",    "architecture",
      "workspace_bytes", "graph",   "tensors", "buffers", "kernels", "cuts"};
  if (!object(document_, "", keys) || !field(document_, "", "library", plan_.version) ||
      !field(document_, "", "name", plan_.name) ||
      !field(document_, "", "architecture", plan_.architecture))
    return false;
  if (!plan_.architecture.empty() && !valid_target(plan_.architecture))
    return fail("architecture", document_.find("architecture")->line,
                "'" + plan_.architecture + "'", "'' or a target such as 'sm_90a'");
  return range(document_, "", "workspace_bytes", 0, kMaxWorkspace, plan_.workspace_bytes);
}

bool PlanReader::read_graph_and_tensors() {
  auto graph = read_graph(*document_.find("graph"), file_, false);
  if (!graph) {
    fields_.errors() = graph.errors();
    return false;
  }
  graph_ = std::move(*graph);
  plan_.graph_json = graph_to_json(*graph_);
  for (std::size_t i = 0; i < graph_->tensors().size(); ++i)
    ids_.emplace(graph_->tensors()[i].name, static_cast<TensorId>(i));
  const auto* tensors = list("tensors");
  if (!tensors) return false;
  std::set<std::string> names;
  const auto read = [&](const Value& v, const std::string& at) {
    if (!read_tensor(v, at)) return false;
    PlanTensor& t = plan_.tensors.back();
    if (t.kept ? !fits_kept(t, v.line) : !matches_graph(t, v.line)) return false;
    return names.insert(plan_.tensors.back().name).second ||
           fail(at, v.line, "the second of this name", "each tensor once");
  };
  if (!each(*tensors, "tensors", read)) return false;
  for (auto& t : plan_.tensors) {
    if (t.kept) continue;
    const TensorId alias = (*graph_)[ids_.at(t.name)].alias;
    for (std::size_t i = 0; alias >= 0 && i < plan_.tensors.size(); ++i)
      if (plan_.tensors[i].name == (*graph_)[alias].name) t.alias = static_cast<std::int64_t>(i);
  }
  // A call binds what the table lists: with one missing it could bind all that it is told of and
  // still lack a pointer.
  for (std::size_t i = 0; i < graph_->tensors().size(); ++i) {
    const auto& t = graph_->tensors()[i];
    const bool input = graph_->is_input(static_cast<TensorId>(i));
    if ((input || t.output) && !names.contains(t.name))
      return fields_.fail(Rule::plan_format, {"", t.name, "tensors"},
                          document_.find("tensors")->line,
                          detail::text({"no entry for this ", input ? "input" : "output"}),
                          "every input and every output of the graph");
  }
  if (std::none_of(plan_.tensors.begin(), plan_.tensors.end(),
                   [](const PlanTensor& t) { return t.written; }))
    return fail("tensors", document_.find("tensors")->line, "nothing that is written", "an output");
  return true;
}

bool PlanReader::read_tensor(const Value& v, const std::string& at) {
  static constexpr std::string_view keys[] = {"name",  "data_type", "dim",  "stride", "alignment",
                                              "bytes", "uid",       "kept", "written"};
  PlanTensor t;
  if (!object(v, at, keys, {"uid", "kept"}) || !field(v, at, "name", t.name) ||
      !field(v, at, "data_type", t.type) || !field(v, at, "dim", t.dim) ||
      !field(v, at, "stride", t.stride) || !field(v, at, "alignment", t.alignment) ||
      !field(v, at, "bytes", t.bytes) || !field(v, at, "written", t.written))
    return false;
  if (v.find("uid") && !field(v, at, "uid", t.uid)) return false;
  if (v.find("kept") && !field(v, at, "kept", t.kept)) return false;
  plan_.tensors.push_back(std::move(t));
  return true;
}

bool PlanReader::matches_graph(PlanTensor& t, unsigned line) {
  const auto wrong = [&](const char* what, const std::string& seen, const std::string& allowed) {
    return fields_.fail(Rule::plan_format, {"", t.name, what}, line, seen,
                        allowed + ", as its graph says");
  };
  const auto found = ids_.find(t.name);
  if (found == ids_.end()) return wrong("name", "no such tensor", "a tensor of the graph");
  const TensorId id = found->second;
  const auto& desc = (*graph_)[id];
  if (!graph_->is_input(id) && !desc.output)
    return wrong("name", "a tensor inside the graph", "an input or an output");
  const Dims stride = graph_->stride(id);
  const auto type = graph_->type(id);
  const auto bytes = span_elements(desc.dim, stride) * info(type).bytes;
  if (t.type != type) return wrong("data_type", std::string(name(t.type)), std::string(name(type)));
  if (t.dim != desc.dim) return wrong("dim", to_string(t.dim), to_string(desc.dim));
  if (t.stride != stride) return wrong("stride", to_string(t.stride), to_string(stride));
  if (t.bytes != bytes) return wrong("bytes", std::to_string(t.bytes), std::to_string(bytes));
  if (t.alignment != desc.alignment)
    return wrong("alignment", std::to_string(t.alignment), std::to_string(desc.alignment));
  if (t.uid != desc.uid) return wrong("uid", "another uid", "the uid");
  if (t.written != desc.output)
    return wrong("written", t.written ? "true" : "false", desc.output ? "true" : "false");
  t.by_value = desc.bound_value;
  t.read = desc.output || desc.read;
  return true;
}

bool PlanReader::fits_kept(const PlanTensor& t, unsigned line) {
  const auto wrong = [&](const char* what, const std::string& seen, const std::string& allowed) {
    return fields_.fail(Rule::plan_format, {"", t.name, what}, line, seen, allowed);
  };
  if (ids_.contains(t.name)) return wrong("name", "a tensor of the graph", "a name of its own");
  if (t.dim.size() != 1 || t.dim[0] < 0 || t.dim[0] > kMaxWorkspace)
    return wrong("dim", to_string(t.dim), "one extent");
  if (t.stride != Dims{1}) return wrong("stride", to_string(t.stride), "[1]");
  const std::int64_t bytes = t.dim[0] * info(t.type).bytes;
  if (t.bytes != bytes) return wrong("bytes", std::to_string(t.bytes), std::to_string(bytes));
  if (t.alignment != PlanTensor{}.alignment || t.uid)
    return wrong("alignment", std::to_string(t.alignment), "16, and no uid");
  return true;
}

bool PlanReader::read_buffers() {
  static constexpr std::string_view keys[] = {"name",  "inside", "data_type", "offset",
                                              "bytes", "first",  "last"};
  const auto *buffers = list("buffers"), *kernels = list("kernels");
  if (!buffers || !kernels) return false;
  const auto last_kernel = static_cast<std::int64_t>(kernels->size()) - 1;
  return each(*buffers, "buffers", [&](const Value& v, const std::string& at) {
    auto& b = plan_.buffers.emplace_back();
    return object(v, at, keys) && field(v, at, "name", b.name) &&
           field(v, at, "inside", b.inside) && field(v, at, "data_type", b.type) &&
           range(v, at, "offset", 0, plan_.workspace_bytes, b.offset) &&
           range(v, at, "bytes", 0, plan_.workspace_bytes - b.offset, b.bytes) &&
           range(v, at, "first", 0, last_kernel, b.first) &&
           range(v, at, "last", b.first, last_kernel, b.last);
  });
}

bool PlanReader::read_access(const Value& v, const std::string& at, PlanKernel& k) {
  PlanAccess a;
  a.workspace = v.kind == Kind::object && v.find("buffer");
  const std::string_view memory = a.workspace ? "buffer" : "tensor";
  const std::string_view keys[] = {memory, "written", "bytes"};
  const std::size_t known = a.workspace ? plan_.buffers.size() : plan_.tensors.size();
  if (!object(v, at, keys) ||
      !range(v, at, memory, 0, static_cast<std::int64_t>(known) - 1, a.value) ||
      !field(v, at, "written", a.written) || !range(v, at, "bytes", 0, INT64_MAX, a.bytes))
    return false;
  k.accesses.push_back(a);
  return true;
}

bool PlanReader::read_kernels() {
  const auto* kernels = list("kernels");
  if (!kernels || !each(*kernels, "kernels",
                        [&](const Value& v, const std::string& at) { return read_kernel(v, at); }))
    return false;
  for (PlanTensor& t : plan_.tensors)
    if (!t.kept && (*graph_)[ids_.at(t.name)].constant) t.read = plan_.reads(t);
  return true;
}

bool PlanReader::read_kernel(const Value& v, const std::string& at) {
  static constexpr std::string_view keys[] = {
      "entry",  "family",       "nodes",        "config",
      "grid",   "block",        "shared_bytes", "grid_dependency_wait",
      "bytes",  "flops",        "arguments",    "maps",
      "source", "machine_code", "estimated_us", "accesses",
      "names"};
  PlanKernel k;
  std::int64_t grid = 0, block = 0, shared_bytes = 0;
  if (!object(v, at, keys) || !field(v, at, "entry", k.entry) ||
      !field(v, at, "family", k.family) || !range(v, at, "grid", 0, kMaxGrid, grid) ||
      !range(v, at, "block", 1, kMaxBlock, block) ||
      !range(v, at, "shared_bytes", 0, most_shared_bytes(), shared_bytes) ||
      !field(v, at, "grid_dependency_wait", k.grid_dependency_wait) ||
      !range(v, at, "bytes", 0, INT64_MAX, k.bytes) || !field(v, at, "flops", k.flops) ||
      !field(v, at, "estimated_us", k.microseconds) || !field(v, at, "source", k.source))
    return false;
  k.grid = static_cast<std::uint32_t>(grid);
  k.block = static_cast<std::uint32_t>(block);
  k.shared_bytes = static_cast<std::uint32_t>(shared_bytes);
  if (!is_identifier(k.entry)) return fail(at + ".entry", v.line, k.entry, "a C identifier");
  if (k.source.size() > kMaxSource)
    return fail(at + ".source", v.line, std::to_string(k.source.size()), "at most 4 MiB");
  const Value &nodes = *v.find("nodes"), &config = *v.find("config"),
              &arguments = *v.find("arguments"), &maps = *v.find("maps"),
              &accesses = *v.find("accesses"), &names = *v.find("names");
  if (!fields_.is(Kind::array, names, {"", "", at + ".names"}) ||
      !fields_.is(Kind::array, nodes, {"", "", at + ".nodes"}) ||
      !fields_.is(Kind::object, config, {"", "", at + ".config"}) ||
      !fields_.is(Kind::array, arguments, {"", "", at + ".arguments"}) ||
      !fields_.is(Kind::array, maps, {"", "", at + ".maps"}) ||
      !fields_.is(Kind::array, accesses, {"", "", at + ".accesses"}))
    return false;
  for (const auto& n : nodes.items)
    if (!fields_.read(n, {"", "", at + ".nodes"}, k.nodes.emplace_back())) return false;
  for (const auto& n : names.items)
    if (!fields_.read(n, {"", "", at + ".names"}, k.names.emplace_back()))
      return false;
    else if (!is_identifier(k.names.back()))
      return fail(at + ".names", n.line, k.names.back(), "C identifiers");
  for (const auto& m : config.members) {
    auto& entry = k.config.emplace_back(m.key, 0);
    if (!fields_.read(m.value, {"", "", at + ".config." + m.key}, entry.second)) return false;
  }
  if (arguments.items.size() > kMaxArguments)
    return fail(at + ".arguments", v.line, std::to_string(arguments.items.size()), "at most 4096");
  if (maps.items.size() > kMaxMaps)
    return fail(at + ".maps", v.line, std::to_string(maps.items.size()),
                "at most " + std::to_string(kMaxMaps));
  const auto of_kernel = [&](auto read) {
    return [this, read, &k](const Value& item, const std::string& place) {
      return (this->*read)(item, place, k);
    };
  };
  if (!each(maps.items, at + ".maps", of_kernel(&PlanReader::read_map)) ||
      !each(arguments.items, at + ".arguments", of_kernel(&PlanReader::read_argument)) ||
      !each(accesses.items, at + ".accesses", of_kernel(&PlanReader::read_access)))
    return false;
  if (!read_machine_code(*v.find("machine_code"), at + ".machine_code", k)) return false;
  if (const auto p = kernel_problem(plan_, k))
    return fail(path(at, p->field), v.line, p->seen, p->allowed);
  plan_.kernels.push_back(std::move(k));
  return true;
}

bool PlanReader::read_map(const Value& v, const std::string& at, PlanKernel& k) {
  PlanMap m;
  m.workspace = v.kind == Kind::object && v.find("workspace");
  const std::string_view memory = m.workspace ? "workspace" : "tensor";
  std::vector<std::string_view> keys = {memory, "data_type", "dim",   "stride",
                                        "box",  "swizzle",   "offset"};
  const bool pixels = v.kind == Kind::object && v.find("step");
  if (pixels) keys.insert(keys.end(), {"lower", "upper", "step"});
  std::string type;
  std::int64_t swizzle = 0;
  if (!object(v, at, keys) || !field(v, at, memory, m.value) || !field(v, at, "data_type", type) ||
      !field(v, at, "dim", m.map.dim) || !field(v, at, "box", m.map.box) ||
      !range(v, at, "swizzle", 0, 128, swizzle) || !field(v, at, "offset", m.map.offset))
    return false;
  if (pixels && (!field(v, at, "lower", m.map.lower) || !field(v, at, "upper", m.map.upper) ||
                 !field(v, at, "step", m.map.step)))
    return false;
  const auto found = data_type_from_name(type);  // also tf32, to which the hardware rounds
  if (!found) return fail(path(at, "data_type"), v.line, "'" + type + "'", "a data type");
  m.map.type = *found;
  m.map.swizzle = static_cast<int>(swizzle);
  const Value& stride = *v.find("stride");  // empty where the rank is 1
  const bool none = stride.kind == Kind::array && stride.items.empty();
  if (!none && !field(v, at, "stride", m.map.stride)) return false;
  if (const auto p = map_problem(plan_, m))
    return fail(path(at, p->field), v.line, p->seen, p->allowed);
  k.maps.push_back(std::move(m));
  return true;
}

bool PlanReader::read_argument(const Value& v, const std::string& at, PlanKernel& k) {
  using enum KernelArgument::Kind;
  static constexpr std::string_view tensor_keys[] = {"tensor"}, workspace_keys[] = {"workspace"},
                                    scalar_keys[] = {"scalar", "bytes"},
                                    map_keys[] = {"tensor_map"},
                                    number_keys[] = {"number", "bytes"},
                                    integer_keys[] = {"integer"};
  KernelArgument a;
  bool ok = false;
  if (v.kind == Kind::object && v.find("tensor")) {
    a.kind = tensor;
    ok = object(v, at, tensor_keys) &&
         range(v, at, "tensor", 0, static_cast<std::int64_t>(plan_.tensors.size()) - 1, a.value);
    if (ok && plan_.tensors[static_cast<std::size_t>(a.value)].by_value)
      ok = fail(path(at, "tensor"), v.line, std::to_string(a.value), "a tensor in memory");
  } else if (v.kind == Kind::object && v.find("workspace")) {
    a.kind = workspace;
    ok = object(v, at, workspace_keys) &&
         range(v, at, "workspace", 0, plan_.workspace_bytes, a.value);
  } else if (v.kind == Kind::object && v.find("tensor_map")) {
    a.kind = tensor_map;
    a.bytes = kTensorMapBytes;
    ok = object(v, at, map_keys) &&
         range(v, at, "tensor_map", 0, static_cast<std::int64_t>(k.maps.size()) - 1, a.value);
  } else if (v.kind == Kind::object && (v.find("number") || v.find("integer"))) {
    std::int64_t bytes = 8;
    a.kind = v.find("number") ? number : integer;
    const std::string_view key = a.kind == number ? "number" : "integer";
    ok = (a.kind == number ? object(v, at, number_keys) && range(v, at, "bytes", 4, 8, bytes)
                           : object(v, at, integer_keys)) &&
         range(v, at, key, 0, static_cast<std::int64_t>(plan_.tensors.size()) - 1, a.value);
    if (ok && (bytes != 4 && bytes != 8)) ok = fail(at + ".bytes", v.line, "", "4 or 8");
    if (ok && !plan_.tensors[static_cast<std::size_t>(a.value)].by_value)
      ok = fail(path(at, key), v.line, std::to_string(a.value), "a tensor that is passed by value");
    a.bytes = static_cast<int>(bytes);
  } else {
    std::int64_t bytes = 8;
    a.kind = scalar;
    ok = object(v, at, scalar_keys) && field(v, at, "scalar", a.value) &&
         range(v, at, "bytes", 1, 8, bytes);
    if (ok && (bytes & (bytes - 1))) ok = fail(at + ".bytes", v.line, "", "1, 2, 4 or 8");
    a.bytes = static_cast<int>(bytes);
  }
  k.arguments.push_back(a);
  return ok;
}

bool PlanReader::read_machine_code(const Value& v, const std::string& at, PlanKernel& k) {
  if (!fields_.is(Kind::object, v, {"", "", at})) return false;
  for (const auto& m : v.members) {
    if (!valid_target(m.key)) return fail(at, m.value.line, m.key, "targets such as sm_90a");
    if (m.value.kind == Kind::integer) {  // the number of a kernel before that has the same
      const auto number = static_cast<std::size_t>(m.value.integer);  // a negative one is large
      if (number >= plan_.kernels.size() || !plan_.kernels[number].machine_code.contains(m.key))
        return fail(at + "." + m.key, m.value.line, std::to_string(m.value.integer),
                    "the number of a kernel before this one that has such code");
      k.machine_code[m.key] = plan_.kernels[number].machine_code.at(m.key);
      if ((shared_code_ += k.machine_code[m.key].size()) > 4 * kMaxMachineCode)
        return fail(at + "." + m.key, m.value.line, "too much", "at most 1 GiB that is shared");
      continue;
    }
    std::string text;
    if (!fields_.read(m.value, {"", "", at + "." + m.key}, text)) return false;
    auto code = from_base64(text);
    if (!code || code->size() > kMaxMachineCode)
      return fail(at + "." + m.key, m.value.line, code ? "too much" : "no base64 text",
                  "at most 256 MiB as base64");
    k.machine_code.emplace(m.key, std::move(*code));
  }
  return true;
}

bool PlanReader::read_cuts() {
  static constexpr std::string_view keys[] = {"pattern", "node", "with", "tensor", "reason", "fix"};
  const auto* cuts = list("cuts");
  return cuts && each(*cuts, "cuts", [&](const Value& v, const std::string& at) {
           auto& c = plan_.cuts.emplace_back();
           return object(v, at, keys) && field(v, at, "pattern", c.pattern) &&
                  field(v, at, "node", c.node) && field(v, at, "tensor", c.tensor) &&
                  field(v, at, "reason", c.reason) && field(v, at, "with", c.with) &&
                  field(v, at, "fix", c.fix);
         });
}

// Over the canonical text of what was read, so that the layout of the file does not matter.
void PlanReader::check_hash() {
  std::string stated;
  if (!field(document_, "", "hash", stated)) return;
  const std::string found = plan_hash(plan_body(plan_));
  if (stated != found)
    fail("hash", document_.find("hash")->line, found + " over the contents", "'" + stated + "'");
}

Diagnostics as_plan_errors(Diagnostics errors) {
  for (auto& d : errors) {
    if (d.rule == Rule::plan_format) continue;
    d.seen = std::string(info(d.rule).says) + (d.seen.empty() ? "" : ": " + d.seen);
    d.rule = Rule::plan_format;
  }
  return errors;
}

}  // namespace

Result<PlanData> plan_from_json(std::string_view text, std::string_view file) {
  const auto document = parse(text, file);
  if (!document) return as_plan_errors(document.errors());
  auto plan = PlanReader(*document, file).read();
  if (!plan) return as_plan_errors(plan.errors());
  return plan;
}

}  // namespace sinter::json

namespace sinter {

std::string Plan::to_json() const { return json::plan_to_json(data()); }

Result<Plan> Plan::from_json(std::string_view text, std::string_view file) {
  auto data = json::plan_from_json(text, file);
  SINTER_TRY(data);
  return Plan(Shared<const PlanData>::make(std::move(*data)));
}

}  // namespace sinter
