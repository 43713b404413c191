// Copying parts of one kernel's body into another's, where a kernel is cut in several.
#pragma once
#include <vector>

#include "plan/kernel_spec.hpp"

namespace sinter {

// Copies statements of one body into another and renumbers what they name.
class BodyCopy {
 public:
  // The first `shared_indices` of the domains are the same.
  BodyCopy(const KernelSpec& from, KernelSpec& to, int shared_indices)
      : from_(from), to_(to), shared_(shared_indices), map_(from.body.statements.size(), -1) {}

  void set(int statement, int copy) { map_[static_cast<std::size_t>(statement)] = copy; }
  // The copy of a statement and of everything that it needs.
  int copy(int statement);
  // Adds a statement; phases and levels follow from the operands.
  int add(Statement s);
  int add_port(KernelPort p);
  // The value rounded to a type.
  int add_convert(int value, DataType arithmetic, DataType type, const std::string& label);
  int add_store(int value, DataType arithmetic, const KernelPort& port, bool per_row);

 private:
  int port(int p);
  // What the first `shared_` indices do, on the target's domain.
  Access restricted(const Access& a) const;

  const KernelSpec& from_;
  KernelSpec& to_;
  int shared_;
  std::vector<int> map_;
};

Statement statement(StatementKind kind, DataType arithmetic, const std::string& label);

// A port that a later kernel reads as this kernel writes it.
KernelPort read_back(KernelPort port, Access access);

// In a rowwise spec whose rows are partial results: reads them, combines them and finishes the
// reduction. Returns the statement that holds the result.
int finish_parts(KernelSpec& spec, BodyCopy& body, const KernelPort& partials, ReductionMode mode,
                 DataType arithmetic, std::int64_t length, const std::string& label);

}  // namespace sinter
