// Every key is written in a fixed order, so that a plan that was read gives the same bytes again
// and the hash can be taken over the text.
#include "json/plan_writer.hpp"

#include <fmt/format.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <map>

#include "json/base64.hpp"
#include "json/plan_json.hpp"
#include "json/reader.hpp"

namespace sinter::json {
namespace {

template <class List, class Text>
std::string joined(const List& list, std::string_view separator, Text&& text) {
  std::string s;
  bool first = true;
  for (const auto& item : list) {
    if (!first) s += separator;
    first = false;
    s += text(item);
  }
  return s;
}

std::string plan_tensor_text(const PlanTensor& t) {
  return fmt::format(
      "    {{\"name\": {}, \"data_type\": {}, \"dim\": {}, \"stride\": {}, \"alignment\": {}, "
      "\"bytes\": {}, {}{}\"written\": {}}}",
      json_string(t.name), json_string(name(t.type)), to_string(t.dim), to_string(t.stride),
      t.alignment, t.bytes, t.uid ? fmt::format("\"uid\": {}, ", *t.uid) : "",
      t.kept ? "\"kept\": true, " : "", t.written);
}

std::string buffer_text(const PlanBuffer& b) {
  return fmt::format(
      "    {{\"name\": {}, \"inside\": {}, \"data_type\": {}, \"offset\": {}, \"bytes\": {}, "
      "\"first\": {}, \"last\": {}}}",
      json_string(b.name), json_string(b.inside), json_string(name(b.type)), b.offset, b.bytes,
      b.first, b.last);
}

std::string access_text(const PlanAccess& a) {
  return fmt::format("{{\"{}\": {}, \"written\": {}, \"bytes\": {}}}",
                     a.workspace ? "buffer" : "tensor", a.value, a.written, a.bytes);
}

std::string argument_text(const KernelArgument& a) {
  switch (a.kind) {
    case KernelArgument::Kind::tensor:
      return fmt::format("{{\"tensor\": {}}}", a.value);
    case KernelArgument::Kind::workspace:
      return fmt::format("{{\"workspace\": {}}}", a.value);
    case KernelArgument::Kind::tensor_map:
      return fmt::format("{{\"tensor_map\": {}}}", a.value);
    case KernelArgument::Kind::number:
      return fmt::format("{{\"number\": {}, \"bytes\": {}}}", a.value, a.bytes);
    case KernelArgument::Kind::integer:
      return fmt::format("{{\"integer\": {}}}", a.value);
    case KernelArgument::Kind::scalar:
      break;
  }
  return fmt::format("{{\"scalar\": {}, \"bytes\": {}}}", a.value, a.bytes);
}

std::string map_text(const PlanMap& m) {
  const std::string pixels =
      m.map.walks_pixels()
          ? fmt::format(", \"lower\": {}, \"upper\": {}, \"step\": {}", to_string(m.map.lower),
                        to_string(m.map.upper), to_string(m.map.step))
          : "";
  return fmt::format(
      "{{\"{}\": {}, \"data_type\": {}, \"dim\": {}, \"stride\": {}, \"box\": {}, "
      "\"swizzle\": {}, \"offset\": {}{}}}",
      m.workspace ? "workspace" : "tensor", m.value, json_string(name(m.map.type)),
      to_string(m.map.dim), to_string(m.map.stride), to_string(m.map.box), m.map.swizzle,
      m.map.offset, pixels);
}

// By target: base64, or the number of the first kernel that has the same.
class MachineCodes {
 public:
  std::string text(const PlanKernel& k) {
    const std::size_t number = kernels_++;
    return joined(k.machine_code, ", ", [&](const auto& m) {
      const std::size_t first = known_.try_emplace({m.first, m.second}, number).first->second;
      return first < number ? fmt::format("{}: {}", json_string(m.first), first)
                            : fmt::format("{}: \"{}\"", json_string(m.first), to_base64(m.second));
    });
  }

 private:
  std::map<std::pair<std::string_view, std::string_view>, std::size_t> known_;
  std::size_t kernels_ = 0;
};

void append_kernel(std::string& s, const PlanKernel& k, MachineCodes& codes) {
  s += "    {\n";
  s += fmt::format("      \"entry\": {}, \"family\": {},\n", json_string(k.entry),
                   json_string(name(k.family)));
  s += fmt::format("      \"nodes\": [{}],\n",
                   joined(k.nodes, ", ", [](const std::string& n) { return json_string(n); }));
  s += fmt::format("      \"config\": {{{}}},\n", joined(k.config, ", ", [](const auto& c) {
                     return fmt::format("{}: {}", json_string(c.first), c.second);
                   }));
  s += fmt::format(
      "      \"grid\": {}, \"block\": {}, \"shared_bytes\": {}, \"grid_dependency_wait\": {}, "
      "\"bytes\": {}, \"flops\": {}, \"estimated_us\": {},\n",
      k.grid, k.block, k.shared_bytes, k.grid_dependency_wait, k.bytes, number(k.flops),
      number(k.microseconds));
  s += fmt::format("      \"accesses\": [{}],\n", joined(k.accesses, ", ", access_text));
  s += fmt::format("      \"arguments\": [{}],\n", joined(k.arguments, ", ", argument_text));
  s += fmt::format("      \"maps\": [{}],\n", joined(k.maps, ",\n        ", map_text));
  s += fmt::format("      \"names\": [{}],\n",
                   joined(k.names, ", ", [](const std::string& n) { return json_string(n); }));
  s += "      \"source\": ";
  append_json_string(s, k.source);
  s += ",\n";
  s += fmt::format("      \"machine_code\": {{{}}}\n", codes.text(k));
  s += "    }";
}

std::string cut_text(const PlanCut& c) {
  return fmt::format(
      "    {{\"pattern\": {}, \"node\": {}, \"with\": {}, \"tensor\": {}, \"reason\": {}, "
      "\"fix\": {}}}",
      json_string(c.pattern), json_string(c.node), json_string(c.with), json_string(c.tensor),
      json_string(c.reason), json_string(c.fix));
}

template <class List, class Append>
void append_array(std::string& s, std::string_view key, const List& list, Append&& append) {
  s += fmt::format("  {}: [", json_string(key));
  for (std::size_t i = 0; i < list.size(); ++i) {
    s += i > 0 ? ",\n" : "\n";
    append(list[i]);
  }
  s += list.empty() ? "]" : "\n  ]";
}

// The graph's own text, two columns further in; its strings hold no line breaks.
std::string indented(std::string_view text) {
  while (!text.empty() && text.back() == '\n') text.remove_suffix(1);
  std::string s;
  for (char c : text) {
    s += c;
    if (c == '\n') s += "  ";
  }
  return s;
}

// In place: texts of many kernels are larger than what else a plan takes.
void append_body(std::string& s, const PlanData& p) {
  std::size_t sources = p.graph_json.size();
  for (const PlanKernel& k : p.kernels) sources += k.source.size();
  s.reserve(s.size() + sources + sources / 8);
  s += fmt::format(
      "  \"library\": {}, \"name\": {}, \"architecture\": {}, \"workspace_bytes\": {},\n",
      json_string(p.version), json_string(p.name), json_string(p.architecture), p.workspace_bytes);
  s += fmt::format("  \"graph\": {},\n", indented(p.graph_json));
  const auto with = [&s](const auto& text) { return [&](const auto& x) { s += text(x); }; };
  append_array(s, "tensors", p.tensors, with(plan_tensor_text));
  s += ",\n";
  append_array(s, "buffers", p.buffers, with(buffer_text));
  s += ",\n";
  MachineCodes codes;
  append_array(s, "kernels", p.kernels, [&](const PlanKernel& k) { append_kernel(s, k, codes); });
  s += ",\n";
  append_array(s, "cuts", p.cuts, with(cut_text));
  s += "\n}\n";
}

}  // namespace

std::string plan_body(const PlanData& p) {
  std::string s;
  append_body(s, p);
  return s;
}

std::string plan_hash(std::string_view body) {
  const auto hash = XXH3_128bits(body.data(), body.size());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

std::string plan_to_json(const PlanData& plan) {
  std::string s = fmt::format("{{\n  \"format\": {}, \"version\": {}, \"hash\": \"",
                              json_string(kPlanFormat), kPlanVersion);
  const std::size_t hash = s.size();
  s += plan_hash("") + "\",\n";  // as long as that of the body, which comes in its place
  const std::size_t body = s.size();
  append_body(s, plan);
  const std::string found = plan_hash(std::string_view(s).substr(body));
  s.replace(hash, found.size(), found);
  return s;
}

}  // namespace sinter::json
