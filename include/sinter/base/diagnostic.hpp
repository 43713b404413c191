// Errors as data: which rule, where in the graph, what was seen, what is allowed, what would pass,
// and the line of the user's own call.
#pragma once
#include <source_location>
#include <string>
#include <vector>

#include "sinter/base/rules.hpp"
#include "sinter/base/text.hpp"

namespace sinter {

struct Diagnostic {
  Rule rule{};
  std::string node{};       // name of the node, or "op #index"; empty when none is concerned
  std::string tensor{};     // name of the tensor; empty when none is concerned
  std::string attribute{};  // attribute, port or field
  std::string seen{};
  std::string allowed{};
  std::string fix{};   // the smallest change that would pass, where one is known
  std::string file{};  // of the user's call, or of the document
  unsigned line = 0;

  std::string_view id() const { return info(rule).id; }
  // One line, e.g. "matmul-contraction: node 'proj', port B: seen [4, 8] ...; allowed ...; ...".
  // Names of more than 160 bytes and parts of more than 2,400 are cut; the fields hold all of them.
  std::string message() const {
    const auto name = [](const std::string& t) { return detail::shortened(t, 160); };
    const auto part = [](const std::string& t) { return detail::shortened(t, 2400); };
    std::string s = detail::text({id(), ":"});
    if (!node.empty()) s += detail::text({" node '", name(node), "'"});
    if (!tensor.empty())
      s += detail::text({node.empty() ? " tensor '" : ", tensor '", name(tensor), "'"});
    if (!attribute.empty())
      s += detail::text({node.empty() && tensor.empty() ? " " : ", ", part(attribute)});
    s += detail::text({" ", info(rule).says});
    if (!seen.empty()) s += detail::text({"; seen ", part(seen)});
    if (!allowed.empty()) s += detail::text({"; allowed ", part(allowed)});
    if (!fix.empty()) s += detail::text({"; ", part(fix)});
    if (!file.empty())
      s += line ? detail::text({" (", part(file), ":", line, ")"})
                : detail::text({" (", part(file), ")"});
    return s;
  }
};

using Diagnostics = std::vector<Diagnostic>;

// The user's call that made a tensor or a node.
struct Where {
  const char* file = "";
  unsigned line = 0;
  constexpr Where() = default;
  constexpr Where(std::source_location l) : file(l.file_name()), line(l.line()) {}
  static constexpr Where current(std::source_location l = std::source_location::current()) {
    return l;
  }
};

}  // namespace sinter
