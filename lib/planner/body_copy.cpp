#include "planner/body_copy.hpp"

#include <algorithm>

#include "plan/liveness.hpp"
#include "planner/body_builder.hpp"

namespace sinter {

int BodyCopy::copy(int statement) {
  int& known = map_[static_cast<std::size_t>(statement)];
  if (known >= 0) return known;
  Statement s = from_.body.statements[static_cast<std::size_t>(statement)];
  for (int& a : s.args) a = copy(a);
  switch (s.kind) {
    case StatementKind::random:
      if (s.port2 >= 0) s.port2 = port(s.port2);
      [[fallthrough]];
    case StatementKind::load:
    case StatementKind::store:
    case StatementKind::inside:
      if (s.port >= 0) s.port = port(s.port);
      break;
    default:
      break;
  }
  if (!s.access.stride.empty()) s.access = restricted(s.access);
  return map_[static_cast<std::size_t>(statement)] = add(std::move(s));
}

int BodyCopy::add(Statement s) {
  if (!s.args.empty()) {
    s.phase = 0;
    bool per_row = true;
    for (int a : s.args) {
      const auto& operand = to_.body.statements[static_cast<std::size_t>(a)];
      s.phase = std::max(s.phase, operand.phase);
      per_row = per_row && operand.per_row;
    }
    if (!acts(s) || !per_row) s.per_row = per_row;
  }
  if (to_.family != Family::rowwise) s.per_row = false;
  to_.body.statements.push_back(std::move(s));
  return static_cast<int>(to_.body.statements.size()) - 1;
}

int BodyCopy::add_port(KernelPort p) { return sinter::add_port(to_, std::move(p)); }

int BodyCopy::add_store(int value, DataType arithmetic, const KernelPort& port, bool per_row) {
  Statement s = statement(StatementKind::store, arithmetic, port.name);
  s.args = {value};
  s.port = add_port(port);
  s.per_row = per_row;
  return add(std::move(s));
}

Access BodyCopy::restricted(const Access& a) const {
  const auto fit = [&](const Dims& d) {
    Dims r = Dims::filled(to_.extent.size(), 0);
    for (int i = 0; i < std::min(shared_, d.size()); ++i) r[i] = d[i];
    return r;
  };
  Access r = a;
  r.stride = fit(a.stride);
  for (auto& w : r.windows) w.coefficient = fit(w.coefficient);
  return r;
}

int BodyCopy::port(int p) {
  KernelPort copy = from_.ports[static_cast<std::size_t>(p)];
  copy.access = restricted(copy.access);
  return add_port(std::move(copy));
}

Statement statement(StatementKind kind, DataType arithmetic, const std::string& label) {
  Statement s;
  s.kind = kind;
  s.arithmetic = arithmetic;
  s.label = label;
  return s;
}

KernelPort read_back(KernelPort port, Access access) {
  port.written = false;
  port.access = std::move(access);
  return port;
}

}  // namespace sinter
