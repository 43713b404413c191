#include "schedule/hoisted_values.hpp"

#include <functional>

namespace sinter {

HoistedValues hoisted_values(const StatementForms& body, const std::vector<bool>& same) {
  const std::vector<bool> none(static_cast<std::size_t>(body.size()));
  HoistedValues hoisted{none, none, none};
  // Constants of the kernel's arguments and indices cost nothing where they are used.
  const auto is_worth_it = [&](int i) {
    const StatementKind kind = body.statement(i).kind;
    return same[static_cast<std::size_t>(i)] && kind != StatementKind::scalar &&
           kind != StatementKind::index;
  };
  const std::function<void(int)> need = [&](int i) {
    const auto at = static_cast<std::size_t>(i);
    if (is_worth_it(i)) {
      hoisted.values[at] = true;
      return;
    }
    if (hoisted.of_element[at]) return;
    hoisted.of_element[at] = true;
    const int divisor = body.divisor(i);
    for (const int a : body.statement(i).args)
      if (a == divisor)
        hoisted.divisors[static_cast<std::size_t>(a)] = true;
      else
        need(a);
  };
  need(body.size() - 1);
  return hoisted;
}

int drawn_by_caller(const StatementForms& body, const HoistedValues& hoisted) {
  int drawn = -1;
  for (int i = 0; i < body.size(); ++i) {
    if (body.statement(i).kind != StatementKind::random) continue;
    if (drawn >= 0) return -1;
    drawn = i;
  }
  return drawn >= 0 && hoisted.of_element[static_cast<std::size_t>(drawn)] &&
                 body.statement(drawn).rng.distribution == Distribution::bernoulli
             ? drawn
             : -1;
}

}  // namespace sinter
