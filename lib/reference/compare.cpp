// The judge of what a kernel wrote. The reference's value and bound are carried through the
// rounding of the stored type, which is monotone: the kernel's number must lie between the rounded
// ends.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <new>
#include <stdexcept>
#include <tuple>

#include "reference/box.hpp"
#include "reference/samples.hpp"
#include "reference/slope.hpp"
#include "reference/stored.hpp"

namespace sinter {
namespace {

using reference::distance;
using reference::kUntrusted;

// Half the distance of neighbours of the type at a value that it holds.
double half_step(DataType type, double value) {
  const auto& t = info(type);
  const int e = value == 0 ? t.min_exponent : std::max(std::ilogb(value), t.min_exponent);
  return std::ldexp(1.0, e - t.precision);
}

std::string place(const Graph& graph, TensorId tensor, std::int64_t element) {
  const Dims& dim = graph[tensor].dim;
  return fmt::format("tensor '{}' {}", graph.label(tensor),
                     to_string(reference::coordinates(element, dim)));
}

class Comparer {
 public:
  Comparer(const Graph& graph, TensorId tensor)
      : graph_(graph), tensor_(tensor), type_(graph.type(tensor)) {}

  void add(std::int64_t element, double seen, const Judged& judged) {
    const auto s = reference::stored(type_, judged.value, judged.error);
    ++c_.compared;
    if (!s.trusted) {
      ++c_.untrusted;
      return;
    }
    if (s.low == s.high || s.value != s.value) ++c_.exact;
    const bool nan = s.value != s.value;
    const bool right = nan ? seen != seen : s.low <= seen && seen <= s.high;
    if (!right) {
      ++c_.wrong;
      if (c_.first_wrong.empty())
        c_.first_wrong =
            fmt::format("{}: seen {:.17g}, expected {:.17g}, allowed {:.17g} to {:.17g}",
                        place(graph_, tensor_, element), seen, s.value, s.low, s.high);
    }
    if (nan) return;
    const double d = distance(seen, s.value),
                 bound = seen > s.value ? s.high - s.value : s.value - s.low;
    const double ratio = d == 0 ? 0 : d / bound;  // infinite where they had to agree
    c_.worst_ratio = std::max(c_.worst_ratio, ratio == ratio ? ratio : right ? 1.0 : kUntrusted);
    if (!std::isfinite(s.value) || !std::isfinite(seen)) return;
    deviations_.push_back(d);
    values_.push_back(s.value);
    const auto& t = info(type_);
    const bool clipped = std::fabs(s.value) >= t.largest;
    if (t.floating && t.precision > 1 && !clipped)
      slope_.push_back({seen, judged, s.value, half_step(type_, s.value)});
  }

  Comparison result() {
    double squares = 0;
    for (const double v : values_) squares += v * v;
    const double scale =
        values_.empty() ? 0 : std::sqrt(squares / static_cast<double>(values_.size()));
    for (std::size_t i = 0; i < values_.size(); ++i) {
      const double size = std::max(std::fabs(values_[i]), scale);
      if (deviations_[i] > 0)
        c_.max_rel_error =
            std::max(c_.max_rel_error, size > 0 ? deviations_[i] / size : kUntrusted);
    }
    c_.slope_ok = reference::slope_ok(std::move(slope_));
    if (!c_.slope_ok && c_.first_wrong.empty())
      c_.first_wrong = fmt::format("tensor '{}': a systematic scale error", graph_.label(tensor_));
    return std::move(c_);
  }

 private:
  const Graph& graph_;
  TensorId tensor_;
  DataType type_;
  Comparison c_;
  std::vector<double> deviations_, values_;
  std::vector<reference::SlopePoint> slope_;
};

}  // namespace

void Comparison::merge(const Comparison& other) {
  compared += other.compared;
  wrong += other.wrong;
  untrusted += other.untrusted;
  exact += other.exact;
  max_rel_error = std::max(max_rel_error, other.max_rel_error);
  worst_ratio = std::max(worst_ratio, other.worst_ratio);
  slope_ok = slope_ok && other.slope_ok;
  if (first_wrong.empty()) first_wrong = other.first_wrong;
}

namespace {

std::vector<std::int64_t> chosen(const Graph& lowered, TensorId tensor, std::int64_t samples) {
  return reference::sample_elements(lowered[tensor].dim, samples,
                                    static_cast<std::uint64_t>(tensor) + 1);
}

template <class T, class Make>
Result<T> within_memory(const Make& make) {
  try {
    return make();
  } catch (const std::exception& e) {  // std::bad_alloc and its like
    Diagnostic d;
    d.rule = Rule::tensor_size;
    d.attribute = "the check of its outputs";
    d.seen = e.what();
    return d;
  }
}

Comparison compared(const Graph& lowered, const Expected::Output& output, const void* written) {
  const Dims &dim = lowered[output.tensor].dim, stride = lowered.stride(output.tensor);
  Comparer comparer(lowered, output.tensor);
  for (std::size_t i = 0; i < output.elements.size(); ++i) {
    const Dims c = reference::coordinates(output.elements[i], dim);
    std::int64_t at = 0;
    for (int d = 0; d < c.size(); ++d) at += c[d] * stride[d];
    comparer.add(output.elements[i], load_element(lowered.type(output.tensor), written, at),
                 output.judged[i]);
  }
  return comparer.result();
}

}  // namespace

Result<Expected> expected(const Graph& lowered, const HostPointers& inputs,
                          std::span<const TensorId> outputs, std::int64_t samples) {
  return within_memory<Expected>([&]() -> Result<Expected> {
    Expected result;
    for (const TensorId t : outputs) result.outputs.push_back({t, chosen(lowered, t, samples), {}});
    std::vector<JudgeRequest> requests;
    for (const auto& output : result.outputs) requests.push_back({output.tensor, output.elements});
    auto judged = judge(lowered, inputs, requests);
    if (!judged) return judged.errors();
    for (std::size_t i = 0; i < outputs.size(); ++i)
      result.outputs[i].judged = std::move((*judged)[i]);
    return result;
  });
}

std::vector<Comparison> compare(const Graph& lowered, const Expected& expected,
                                std::span<const void* const> written) {
  std::vector<Comparison> results;
  for (std::size_t i = 0; i < expected.outputs.size(); ++i)
    results.push_back(compared(lowered, expected.outputs[i], written[i]));
  return results;
}

Result<std::vector<Comparison>> compare(const Graph& lowered, const HostPointers& inputs,
                                        std::span<const Written> outputs, std::int64_t samples) {
  std::vector<TensorId> tensors;
  std::vector<const void*> written;
  for (const Written& output : outputs) {
    tensors.push_back(output.tensor);
    written.push_back(output.memory);
  }
  const auto said = expected(lowered, inputs, tensors, samples);
  if (!said) return said.errors();
  return within_memory<std::vector<Comparison>>([&] { return compare(lowered, *said, written); });
}

Result<Comparison> compare(const Graph& lowered, const HostPointers& inputs, TensorId tensor,
                           const void* written, std::int64_t samples) {
  const Written output{tensor, written};
  auto all = compare(lowered, inputs, std::span(&output, 1), samples);
  if (!all) return all.errors();
  return std::move(all->front());
}

double compare_cost(const Graph& lowered, std::span<const TensorId> outputs, std::int64_t samples) {
  std::vector<std::vector<std::int64_t>> elements;
  std::vector<JudgeRequest> requests;
  for (const TensorId t : outputs) elements.push_back(chosen(lowered, t, samples));
  for (std::size_t i = 0; i < outputs.size(); ++i) requests.push_back({outputs[i], elements[i]});
  return judge_cost(lowered, requests);
}

}  // namespace sinter
