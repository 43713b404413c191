// How rowwise kernels work.
#include <fmt/format.h>

#include "planner/explain/how.hpp"

namespace sinter {
namespace {

std::string how_rowwise(KernelConstants& get, const PlanKernel&, std::string_view) {
  const std::string moves = moved_vectors(get);
  if (get("rows_fastest"))
    return fmt::format(
        "neighbouring rows are contiguous: {} across rows and {} along a row{}; {}{}",
        counted(get("rows_per_block"), "thread"), get("threads_per_row"),
        get.some("held_in_shared") > 0
            ? fmt::format(" in each of {} blocks, whose shared memory holds it",
                          get("blocks_per_row"))
            : "",
        moves, get("misaligned") ? ", cut out of aligned pieces, as they are misaligned" : "");
  std::string s = counted(get("threads_per_row"), "thread") + " a row";
  if (get("blocks_per_row") > 1)
    s += fmt::format(
        " in each of {} blocks, as one would not hold it, leave others idle, or wait alone on "
        "an SM",
        get("blocks_per_row"));
  if (get("rows_per_block") > 1) s += fmt::format(", {} rows a block", get("rows_per_block"));
  s += get("register_resident") ? "; a row is read once and stays in registers"
                                : "; a row does not fit in registers, each phase reads it again";
  if (get.some("staged_rows") > 0) s += "; a block's rows come to shared memory at once";
  if (get("num_partials") > 0)
    s += fmt::format("; {} persistent {} loop over the rows and {}", get("num_partials"),
                     get("blocks_per_row") > 1 ? "clusters" : "blocks",
                     get.some("kinds") > 0 ? "sum up columns, finished by the next kernel"
                                           : "keep what all of these share in registers");
  if (get("misaligned")) s += kMisalignedRows;
  return s + "; " + moves;
}

}  // namespace

std::span<const EngineSentence> rowwise_sentences() {
  static constexpr EngineSentence all[] = {{"rowwise", how_rowwise}};
  return all;
}

}  // namespace sinter
