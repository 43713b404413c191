#include "gpu/configurations.hpp"

#include <array>
#include <set>

#include "compile/make_plan.hpp"
#include "support/catch.hpp"

namespace sinter::test {
namespace {

// Which operands change places, and whether pixels stay: what follows the last number of a size.
std::string way_of(const std::string& configuration) {
  const auto group = configuration.find(", group"), end = configuration.find(',', group + 1);
  return end == std::string::npos ? "" : configuration.substr(end);
}

// What of a configuration decides which code runs: all but the sizes.
std::string kind_of(const std::string& configuration) {
  const auto from = configuration.find(" by "), to = configuration.find(", stages");
  return configuration.substr(from, to - from) + way_of(configuration);
}

// Its properties by twos: rows and warpgroups, columns, how blocks share the work. One stands for
// all widths that only a problem's own extent asks for.
std::array<std::string, 3> pairs_of(const std::string& configuration) {
  const auto x = configuration.find('x'), by = configuration.find(" by "),
             cluster = configuration.find(", cluster"), stages = configuration.find(", stages");
  const int width = std::stoi(configuration.substr(x + 1));
  const std::string rows = configuration.substr(0, x) + configuration.substr(by, cluster - by) +
                           way_of(configuration),
                    columns =
                        width % 32 == 0 || width <= 16 ? ", " + std::to_string(width) : ", cut",
                    shared = configuration.substr(cluster, stages - cluster);
  return {rows + columns, rows + shared, columns + shared};
}

}  // namespace

void run_as_chosen(const std::vector<GraphSource>& graphs) {
  Failures failures;
  const Totals t =
      run_graphs(graphs, {.samples = 1000, .repeatable = true, .reloaded = true}, failures);
  CHECK(t.graphs == static_cast<std::int64_t>(graphs.size()));
  INFO(failures.text());
  CHECK(failures.all().empty());
}

void run_configurations(const std::vector<GraphSource>& graphs, const Configurations& which) {
  std::vector<GraphSource> all;
  for (const GraphSource& graph : graphs) {
    std::vector<KernelChoice> choices;
    const auto plan = make_plan(*graph.make(), {.architecture = "sm_90a"}, {}, &choices);
    REQUIRE(plan);
    INFO(graph.name);
    REQUIRE(choices.size() == 1);
    std::set<std::string> seen;
    for (const auto& configuration : choices[0].configurations) {
      bool fresh = which.every;
      if (!which.tile.empty())
        fresh = seen.empty() && configuration.starts_with(which.tile + " ") &&
                seen.insert(configuration).second;
      else if (which.one_of_a_kind)
        fresh = seen.insert(kind_of(configuration)).second;
      else if (!which.every)
        for (const auto& pair : pairs_of(configuration)) fresh |= seen.insert(pair).second;
      if (!fresh) continue;
      all.push_back({graph.name + ", " + configuration, all.size(), graph.make, {}});
      all.back().tuning.best[choices[0].problem] = configuration;
    }
  }
  REQUIRE(all.size() >= graphs.size());
  Failures failures;
  const Totals t =
      run_graphs(all, {.fill = which.fill, .samples = 400, .repeatable = true}, failures);
  CHECK(t.graphs == static_cast<std::int64_t>(all.size()));
  WARN(t.graphs << " configurations, " << t.compared << " elements, worst " << t.worst_ratio
                << " of the bound");
  INFO(failures.text());
  CHECK(failures.all().empty());
}

}  // namespace sinter::test
