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
  std::string fix{};  // the smallest change that would pass, where one is known
  std::string file{};  // of the user's call, or of the document
  unsigned line = 0;

  std::string_view id() const { return info(rule).id; }
  // One line, e.g. "matmul-contraction: node 'proj', port B: seen [4, 8] ...; allowed ...; ...".
  std::string message() const {
    std::string s = text({id(), ":"});
    if (!node.empty()) s += text({" node '", node, "'"});
    if (!tensor.empty()) s += text({node.empty() ? " tensor '" : ", tensor '", tensor, "'"});
    if (!attribute.empty()) s += text({node.empty() && tensor.empty() ? " " : ", ", attribute});
    s += text({" ", info(rule).says});
    if (!seen.empty()) s += text({"; seen ", seen});
    if (!allowed.empty()) s += text({"; allowed ", allowed});
    if (!fix.empty()) s += text({"; ", fix});
    if (!file.empty()) s += line ? text({" (", file, ":", line, ")"}) : text({" (", file, ")"});
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
