// Questions about how a kernel's indices move through memory.
#pragma once
#include "plan/kernel_spec.hpp"

namespace sinter {

// The product of the extents [from, to); the largest number where it is none of 64 bits, as the
// domain of attention may have more pairs than memory has elements.
std::int64_t count(const Dims& extent, int from, int to);
// Those extents alone.
Dims part_of(const Dims& extent, int from, int to);
// Packed over `dim`, whose indices are those of the domain from `first` on; 0 for all others.
Access packed_access(int rank, int first, const Dims& dim);

constexpr bool is_load(const Statement& s) { return s.kind == StatementKind::load; }
constexpr bool is_store(const Statement& s) { return s.kind == StatementKind::store; }

// Whether `port`, and `port2`, of the statement are ports of the kernel; of others they number
// scalars, gathers or reductions.
constexpr bool names_ports(const Statement& s) {
  return is_load(s) || is_store(s) || s.kind == StatementKind::inside ||
         s.kind == StatementKind::random;
}

// Operands of several products that share their sums lie one behind another along k, the last
// index: the body of each loads from every part what is within it.
struct JoinedPart {
  int port = -1;
  std::int64_t from = 0, extent = 0;  // along k
  Access access;                      // without the window, k counted from the part's start
};
// The parts in order; none for any other body.
std::vector<JoinedPart> joined_parts(const KernelSpec& spec, const Body& body);
// Whether an operand of the contraction has parts.
bool joins_products(const KernelSpec& spec);

// The port that the body loads as it is, windows and all; null for any other body.
const KernelPort* loaded_as_it_is(const KernelSpec& spec, const Body& body);
// The same, reached by strides alone.
const KernelPort* plainly_loaded(const KernelSpec& spec, const Body& body);

// How far apart two elements lie that neighbour along index i.
std::int64_t step(const Access& access, int i);
// Whether the access, which splits no joined indices, depends on index i.
bool moves_along(const Access& access, int i);
// Whether index i is ever other than 0: of gathered rows also where there is one, since a table
// says which.
bool varies(const KernelSpec& spec, int i);
// Whether a value of the body depends on index i of the domain.
bool depends_on(const KernelSpec& spec, const Body& body, int i);
// rowwise: the indices that name a row; none in other families.
int outer_rank(const KernelSpec& spec);
// The elements that it reaches, where different indices reach different ones.
std::int64_t elements_reached(const Dims& extent, const Access& access);

// Whether neighbours along index `other` are contiguous in more of the statements' ports than along
// `usual`. An index of -1 is none.
template <class Use>
bool prefers(const KernelSpec& spec, const Body& body, int usual, int other, Use use) {
  int balance = 0;
  for (const auto& s : body.statements) {
    if (!use(s) || s.port < 0) continue;
    const Access& a = spec.ports[static_cast<std::size_t>(s.port)].access;
    const auto together = [&](int i) { return i >= 0 && (step(a, i) == 1 || step(a, i) == -1); };
    balance += together(other) - together(usual);
  }
  return balance > 0;
}

// Rowwise: neighbouring rows are contiguous, not neighbours along the row.
bool rows_lie_together(const KernelSpec& spec);

// rowwise: the indices of rows of which each has column results of its own, the last of the outer
// ones, and how many such rows there are.
int column_kinds_from(const KernelSpec& spec);
std::int64_t column_kinds(const KernelSpec& spec);

}  // namespace sinter
