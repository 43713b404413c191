#include "schedule/contraction/held_type.hpp"

#include <algorithm>
#include <limits>

namespace sinter {
namespace {

// The one of both types that holds the other's values.
DataType wider(DataType a, DataType b) {
  if (a == b || (is_floating(a) && holds_type(a, b))) return a;
  return is_floating(b) && holds_type(b, a) ? b : DataType::none;
}

DataType held_by(const KernelSpec& spec, const Body& body, int value) {
  const Statement& s = body.statements[static_cast<std::size_t>(value)];
  const auto of = [&](std::size_t arg) { return held_by(spec, body, s.args[arg]); };
  switch (s.kind) {
    case StatementKind::load: {
      const DataType stored = spec.ports[static_cast<std::size_t>(s.port)].type;
      return s.args.empty() ? stored : wider(stored, of(0));  // what lies outside
    }
    case StatementKind::inside:  // or zero
      return of(0);
    case StatementKind::convert: {
      const DataType from = of(0);
      const bool lossless = from == s.type || (is_floating(s.type) && holds_type(s.type, from));
      return lossless ? from : s.type;
    }
    case StatementKind::pointwise:
      break;
    default:
      return DataType::none;
  }
  const bool clips_at_zero = s.params[0] == 0 && s.params[2] == 0 &&
                             s.params[1] == std::numeric_limits<double>::infinity();
  switch (s.mode) {
    case PointwiseMode::identity:
      return of(0);
    case PointwiseMode::relu_fwd:
      return clips_at_zero ? of(0) : DataType::none;
    case PointwiseMode::abs:
    case PointwiseMode::neg:  // the least integer's is none of its type
      return is_floating(of(0)) ? of(0) : DataType::none;
    case PointwiseMode::max:
    case PointwiseMode::min:
    case PointwiseMode::binary_select:
      return wider(of(0), of(1));
    default:
      return DataType::none;
  }
}

}  // namespace

bool holds_type(DataType to, DataType from) {
  if (from == DataType::none) return false;
  const auto &t = info(to), &f = info(from);
  return t.precision >= f.precision && t.lowest <= f.lowest && t.largest >= f.largest &&
         t.min_exponent - t.precision <= f.min_exponent - f.precision;
}

double largest_of(DataType type) { return std::max(-info(type).lowest, info(type).largest); }

DataType held_type(const KernelSpec& spec, const Body& body) {
  return held_by(spec, body, static_cast<int>(body.statements.size()) - 1);
}

}  // namespace sinter
