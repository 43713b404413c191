// How a transpose, slice or reshape of a result applies to the operands that it is computed from.
#pragma once
#include <optional>
#include <vector>

#include "sinter/ops/op_table.hpp"

namespace sinter {

// A data movement apart from the tensors that it moves.
struct View {
  OpKind op{};  // transpose, slice or reshape
  Attributes attributes;
  Dims from, to;
};

// The view that undoes a transpose or a reshape.
View inverse(const View& v);

// What of an operand, which broadcasts to v.from, is to be read for a result of dims v.to: `dim` is
// the operand's shape with as many dims as v.from (ones in front), `to` that of what is read,
// `view` what moves it; nothing where it broadcasts as it is. nullopt where no view of it will do.
struct OperandView {
  Dims dim, to;
  std::optional<View> view;
};
std::optional<OperandView> operand_view(const View& v, const Dims& operand);

// An operand that broadcasts to the dims that a reshape has, with as many dims, and in full along
// all axes that it joins or splits with one along which the operand is; nullopt where there is
// none.
std::optional<Dims> whole_groups(const View& v, const Dims& operand);

// The axis of v.to that is the axis `axis` of v.from, with the same indices; -1: none.
int kept_axis(const View& v, int axis);

// For each axis of `x`, the one of `y` that a reshape makes of it, or of it and a neighbour; -1 for
// one of extent 1 that is left out. Empty where the reshape does more.
std::vector<int> joined_axes(const Dims& x, const Dims& y);

}  // namespace sinter
