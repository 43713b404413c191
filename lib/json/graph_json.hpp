// Graph JSON inside other documents, and what its reader and its writer share. The public functions
// are in sinter/json.hpp.
#pragma once
#include <string_view>

#include "json/reader.hpp"
#include "sinter/base/shared.hpp"
#include "sinter/graph.hpp"

namespace sinter::json {

inline constexpr std::string_view kGraphFormat = "sinter.graph";
inline constexpr std::int64_t kGraphVersion = 1;
inline constexpr std::size_t kMaxNodes = 100'000;
inline constexpr std::size_t kMaxTensors = 200'000;

// The checked graph of a document that is parsed already; a plan embeds one. That of a plan of
// constants may have no output: what its kernels make is no tensor of the graph.
Result<Shared<Graph>> read_graph(const Value& document, std::string_view file,
                                 bool needs_output = true);

// Visits the attributes that a node of this kind has in a document: all fields of its struct, of a
// pointwise node only those of its mode. visit(name, member).
template <class A, class Visit>
void document_fields(A& attributes, Visit&& visit) {
  A::fields(attributes, visit);
}
template <class Visit, class P>
void pointwise_fields(P& attributes, Visit&& visit) {
  const auto& mode = info(attributes.mode);
  P::fields(attributes, [&](const char* field, auto& member) {
    using Member = std::remove_cvref_t<decltype(member)>;
    bool has = true;
    if constexpr (std::is_same_v<Member, double>) {
      has = false;
      for (int i = 0; i < mode.params; ++i) has |= &(attributes.*mode.param[i]) == &member;
    } else if constexpr (!std::is_same_v<Member, PointwiseMode>) {
      has = attributes.mode == PointwiseMode::gen_index;
    }
    if (has) visit(field, member);
  });
}
template <class Visit>
void document_fields(PointwiseAttributes& attributes, Visit&& visit) {
  pointwise_fields(attributes, visit);
}
template <class Visit>
void document_fields(const PointwiseAttributes& attributes, Visit&& visit) {
  pointwise_fields(attributes, visit);
}

}  // namespace sinter::json
