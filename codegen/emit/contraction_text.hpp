// What the engines of a contraction have in common as text.
#pragma once
#include "emit/engine_text.hpp"

namespace sinter {

class ContractionText : public EngineText {
 public:
  // `packing_a`, `packing_b`: which ports a thread holds as packs while it loads an operand.
  ContractionText(const ScheduledKernel& kernel, const KernelNames& names,
                  const Packing* packing_a = nullptr, const Packing* packing_b = nullptr);
  std::vector<const BodyText*> bodies() const override { return {&body_, &a_, &b_}; }
  std::vector<std::string> words() const override {
    return {c_.rows.on ? "grouped_contraction" : "contraction"};
  }
  void print_types(TextWriter& out) const override;

 protected:
  // The type of the engine's own sums, which become Accumulator; empty where it has none.
  virtual std::string_view sum() const { return {}; }
  // Where rows belong to groups: their type, and the argument that says which these are.
  void print_rows(TextWriter& out) const;
  std::string rows() const;

  const ContractionSpec& c_;
  const BodyText a_, b_;
};

// One operand on CUDA cores: its last statement is the value.
void print_operand(TextWriter& out, const BodyText& body, std::string_view struct_name);

// Any statement's value. `constant`: of type bool, that the struct also has.
void print_value(TextWriter& out, const BodyText& body, int statement, std::string_view struct_name,
                 std::string_view constant = {});

// The epilogue on CUDA cores.
void print_epilogue(TextWriter& out, const BodyText& body);

// Elements of both operands, for sums that tensor cores cannot take; nothing where there are none.
void print_recomputed(TextWriter& out, const KernelSpec& spec, const KernelNames& names,
                      const CountedProducts& counted);

// The epilogue where a thread holds packs of neighbours. `stored`: of engines on warpgroups, how
// results leave.
struct PackedEpilogue {
  const CountedProducts* counted = nullptr;
  const WarpgroupConfig* stored = nullptr;
};
void print_packed_epilogue(TextWriter& out, const KernelSpec& spec, const KernelNames& names,
                           const BodyText& body, const PackedEpilogue& epilogue);

}  // namespace sinter
