#include "plan/map_problem.hpp"

#include <algorithm>

#include "plan/tma_limits.hpp"

namespace sinter {
namespace {

using namespace tma;

using Problem = std::optional<PlanProblem>;

Problem problem(std::string field, std::int64_t seen, std::string allowed) {
  return PlanProblem{std::move(field), std::to_string(seen), std::move(allowed)};
}

std::string up_to(std::int64_t least, std::int64_t most) {
  return std::to_string(least) + " to " + std::to_string(most);
}

std::string member(const char* list, int i) {
  return std::string(list) + "[" + std::to_string(i) + "]";
}

Problem memory_problem(const PlanData& plan, const PlanMap& m) {
  const auto tensors = static_cast<std::int64_t>(plan.tensors.size());
  if (m.workspace) {
    if (m.value < 0 || m.value > plan.workspace_bytes)
      return problem("workspace", m.value, up_to(0, plan.workspace_bytes));
    if (m.value % kUnit != 0) return problem("workspace", m.value, "multiples of 16");
    return {};
  }
  if (m.value < 0 || m.value >= tensors) return problem("tensor", m.value, up_to(0, tensors - 1));
  const auto& t = plan.tensors[static_cast<std::size_t>(m.value)];
  if (t.alignment < kUnit)
    return PlanProblem{"tensor",
                       "alignment " + std::to_string(t.alignment) + " of '" + t.name + "'",
                       "tensors whose alignment is 16 or more"};
  return {};
}

Problem dims_problem(const TensorMap& m) {
  if (m.dim.empty() || m.dim.size() > kMostDims)
    return PlanProblem{"dim", to_string(m.dim), "1 to 5 entries"};
  if (m.stride.size() != m.dim.size() - 1)
    return PlanProblem{"stride", to_string(m.stride), "one entry fewer than dim"};
  if (m.walks_pixels() ? m.box.size() != 2 : m.box.size() != m.dim.size())
    return PlanProblem{"box", to_string(m.box),
                       m.walks_pixels() ? "channels and pixels" : "as many entries as dim"};
  for (int i = 0; i < m.dim.size(); ++i)
    if (m.dim[i] < 1 || m.dim[i] > kMostExtent)
      return problem(member("dim", i), m.dim[i], up_to(1, kMostExtent));
  for (int i = 0; i < m.stride.size(); ++i)
    if (m.stride[i] < 0 || m.stride[i] >= kStrideEnd || m.stride[i] % kUnit != 0)
      return problem(member("stride", i), m.stride[i], "multiples of 16 below 2^40");
  for (int i = 0; i < m.box.size(); ++i) {
    const std::int64_t most = m.walks_pixels() && i == 1 ? kMostPixels : kMostBox;
    if (m.box[i] < 1 || m.box[i] > most) return problem(member("box", i), m.box[i], up_to(1, most));
  }
  return {};
}

Problem pixels_problem(const TensorMap& m) {
  if (!m.walks_pixels()) {
    if (!m.lower.empty() || !m.upper.empty())
      return PlanProblem{"step", to_string(m.step), "as many entries as lower and upper"};
    return {};
  }
  const int spatial = m.dim.size() - 2;
  if (m.dim.size() < kFewestPixelDims)
    return PlanProblem{"dim", to_string(m.dim), "3 to 5 entries"};
  for (const auto& [name, list] :
       {std::pair{"lower", &m.lower}, std::pair{"upper", &m.upper}, std::pair{"step", &m.step}})
    if (list->size() != spatial)
      return PlanProblem{name, to_string(*list), "two entries fewer than dim"};
  const std::int64_t end = kCornerEnd[spatial - 1];
  for (int i = 0; i < spatial; ++i) {
    if (m.step[i] < 1 || m.step[i] > kMostPixelStep)
      return problem(member("step", i), m.step[i], up_to(1, kMostPixelStep));
    if (m.lower[i] < -end || m.lower[i] >= end)
      return problem(member("lower", i), m.lower[i], up_to(-end, end - 1));
    if (m.upper[i] < -end || m.upper[i] >= end)
      return problem(member("upper", i), m.upper[i], up_to(-end, end - 1));
    if (m.dim[i + 1] - 1 + m.upper[i] < m.lower[i])
      return problem(member("upper", i), m.upper[i], "corners with a base pixel between them");
  }
  return {};
}

Problem box_problem(const TensorMap& m) {
  if (m.swizzle != 0 && m.swizzle != 32 && m.swizzle != 64 && m.swizzle != 128)
    return problem("swizzle", m.swizzle, "0, 32, 64 or 128");
  const std::int64_t row = m.box[0] * info(m.type).bytes;
  if (row % kUnit != 0)
    return PlanProblem{"box[0]", std::to_string(row) + " bytes", "multiples of 16 bytes"};
  if (m.swizzle > 0 && row > m.swizzle)
    return PlanProblem{"box[0]", std::to_string(row) + " bytes",
                       "at most the " + std::to_string(m.swizzle) + " bytes of the swizzle"};
  return {};
}

// A map knows its extents, so that one which leaves its memory is wrong for certain.
Problem reach_problem(const PlanData& plan, const PlanMap& m) {
  const std::int64_t bytes = m.workspace ? plan.workspace_bytes - m.value
                                         : plan.tensors[static_cast<std::size_t>(m.value)].bytes;
  if (m.map.offset < 0 || m.map.offset % kUnit != 0)
    return problem("offset", m.map.offset, "multiples of 16 from 0 on");
  const std::int64_t element = info(m.map.type).bytes;
  std::int64_t left = bytes - element;
  if (m.map.offset > left)
    return problem("offset", m.map.offset, "less than the memory's " + std::to_string(bytes));
  left -= m.map.offset;
  for (int i = 0; i < m.map.dim.size(); ++i) {
    const std::int64_t step = i == 0 ? element : m.map.stride[i - 1];
    if (step > 0 && m.map.dim[i] - 1 > left / step)
      return problem(member("dim", i), m.map.dim[i],
                     "what lies in the memory's " + std::to_string(bytes) + " bytes");
    left -= (m.map.dim[i] - 1) * step;
  }
  return {};
}

}  // namespace

std::optional<PlanProblem> map_problem(const PlanData& plan, const PlanMap& m) {
  if (auto p = memory_problem(plan, m)) return p;
  if (info(m.map.type).bytes == 0) return PlanProblem{"data_type", "none", "a type with a size"};
  if (auto p = dims_problem(m.map)) return p;
  if (auto p = pixels_problem(m.map)) return p;
  if (auto p = box_problem(m.map)) return p;
  return reach_problem(plan, m);
}

std::int64_t map_span(const TensorMap& m) {
  std::int64_t span = m.dim[0] * info(m.type).bytes;
  for (int i = 1; i < m.dim.size(); ++i) span += (m.dim[i] - 1) * m.stride[i - 1];
  return span;
}

}  // namespace sinter
