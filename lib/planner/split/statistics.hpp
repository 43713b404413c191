// Averages, and sums of squared distances from them, of rows that are cut in parts: each part is
// taken about its own average, so that one pass does and nothing cancels (Chan, Golub, LeVeque:
// "Updating formulae and a pairwise algorithm for computing sample variances", 1979).
#pragma once
#include "planner/spec/body_copy.hpp"

namespace sinter {

// Whether the spec needs no more of its phases 0 and 1 than reductions of its rows, those of phase
// 1 being sums of squared distances from averages of phase 0.
bool has_statistics(const KernelSpec& spec);

// The average of phase 0 from which reduction `r` of phase 1 takes the distances of the values that
// were averaged; -1 where it is something else.
int centre_of(const KernelSpec& spec, int r);

// In a rowwise spec whose rows are the parts of rows, with `size` elements each: finishes such a
// reduction `r`. `squares` are its partial results, about the parts' own averages; `sums` are what
// the parts add up to, and `mean` is the statement with the average of all. Returns the statement
// that holds the result.
int finish_squares(KernelSpec& spec, BodyCopy& body, const KernelPort& sums,
                   const KernelPort& squares, int mean, const KernelReduction& r, std::int64_t size,
                   const std::string& label);

}  // namespace sinter
