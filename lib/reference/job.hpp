// One piece of work: a box of one output of one node, with everything that its elements read. The
// element functions of all primitives take a Job and a range of the box.
#pragma once
#include <algorithm>
#include <limits>
#include <vector>

#include "reference/box.hpp"
#include "reference/view.hpp"
#include "sinter/graph.hpp"

namespace sinter::reference {

// The arithmetic of a node, as numbers. `integers`: up to here all integers are exact.
struct Precision {
  double u, eta, largest, integers;
};
inline Precision precision_of(DataType arithmetic) {
  if (arithmetic == DataType::f64)
    return {Arithmetic<double>::u, Arithmetic<double>::eta, Arithmetic<double>::largest, 0x1p53};
  return {Arithmetic<float>::u, Arithmetic<float>::eta, Arithmetic<float>::largest, 0x1p24};
}

// Of what is needed of an operand, where errors are tracked.
struct Numbers {
  double unit =
      0;  // a power of two that divides every finite element: are sums exact in any order?
  bool finite = true;
  double largest = 0;             // magnitude of a finite element
  bool subnormal_as_f16 = false;  // some element is, and not zero
};

struct Operand {
  View view;
  Dims dim;
  bool present = false;
  Numbers numbers;
};

// moe_grouped_matmul: what makes one row of the result. Negative: no row does.
struct MoeRow {
  std::int64_t token = -1, expert = -1;
};

struct Job {
  const Graph* graph = nullptr;
  const Node* node = nullptr;
  int output = 0;
  Box box;
  Dims dim;  // of the whole output tensor
  std::vector<Operand> in;
  DataType arithmetic = DataType::f32;
  Precision precision{};
  bool judging = false;
  bool tensor_cores = false;            // contraction: a kernel may use them
  std::int64_t tensor_core_depth = 16;  // products that one step of them sums
  // The error of tensor cores, in units of round-off, that does not grow with the terms.
  double tensor_core_floor = 8;
  bool f16_factors = false;  // of tensor cores
  int scaled_sums = 0;       // roundings of sums that are multiplied with an operand's scales
  // An exponential of attention's softmax, and the difference that it is taken of.
  bool exponential_of_attention = false;
  // A difference of attention's scores may be taken once they are scaled: the most that costs, as
  // error_of_scaling() has it.
  double scaled_first = 0;
  std::uint64_t seed = 0, offset = 0;  // rng
  std::vector<MoeRow> rows;            // moe: by row of the box

  template <class A>
  const A& attributes() const {
    return *std::get_if<A>(&node->attributes);
  }
};

// Elements [begin, end) of the job's box, row-major, not yet rounded to the tensor's type. `e` is
// null where no errors are tracked.
void evaluate_part(const Job& job, std::int64_t begin, std::int64_t end, double* v, double* e);
// Its parts, by primitive.
void evaluate_pointwise(const Job& job, std::int64_t begin, std::int64_t end, double* v, double* e);
void evaluate_contraction(const Job& job, std::int64_t begin, std::int64_t end, double* v,
                          double* e);
void evaluate_reduction(const Job& job, std::int64_t begin, std::int64_t end, double* v, double* e);
void evaluate_layout(const Job& job, std::int64_t begin, std::int64_t end, double* v, double* e);
void evaluate_resample(const Job& job, std::int64_t begin, std::int64_t end, double* v, double* e);
void evaluate_rng(const Job& job, std::int64_t begin, std::int64_t end, double* v, double* e);

// What the job needs beside its views, filled in once before its parts run.
void prepare_moe(Job& job);

// Roughly how many steps one element of a node's result takes, to cut the work evenly and to say
// how long it takes: a core does about 10^9 of them in a second.
double cost_per_element(const Graph& graph, const Node& node, bool judging);

// ---- sums with error bounds

// v: the sum; s: the sum of magnitudes; q: of squares; p: of the errors that the operands bring.
// alike: most terms are equal to others (see in_runs).
struct Sums {
  double v = 0, s = 0, q = 0, p = 0;
  bool alike = false;
};
// Whether n numbers of which so many differ from the one before them, and are not repeated as part
// of a line of them, are each there 16 times and more on average: the roundings of fewer, added up,
// stay below the root's factor. Wherever the equal ones stand: as long as a sum stays between two
// powers of two it is a multiple of its last bit, so that what is rounded off depends on the term
// alone.
constexpr bool in_runs(std::int64_t changes, std::int64_t n) { return 16 * changes < n; }
// Lines of terms, told apart by their sums: the changes within those that repeat neither the line
// before nor one of the first few.
class Lines {
 public:
  // `terms`: at least as many as there will be. Whether they may still stand in runs.
  bool open(std::int64_t terms) const { return in_runs(changes_, terms); }
  void add(const Sums& line, std::int64_t changes, std::int64_t terms) {
    terms_ += terms;
    const auto same = [&](const Sums& other) {
      return other.v == line.v && other.s == line.s && other.q == line.q;
    };
    if (same(last_) || std::any_of(known_.begin(), known_.end(), same)) return;
    last_ = line;
    if (known_.size() < 32) known_.push_back(line);
    changes_ += changes;
  }
  bool alike() const { return in_runs(changes_, terms_); }

 private:
  std::vector<Sums> known_;
  Sums last_{std::numeric_limits<double>::quiet_NaN()};
  std::int64_t changes_ = 0, terms_ = 0;
};
// Growth of the rounding error of a sum of n terms in units of u * s, in any order or tree: like a
// root, because roundings of different partial sums are independent (Higham and Mary, "A new
// approach to probabilistic rounding error analysis"); linear where the terms are nearly equal, or
// few of them differ, because those round alike.
double summation_growth(const Sums& sum, std::int64_t n);
// The finished sum with its bound; `unit` divides every term.
Judged finish_sum(const Sums& sum, double growth, double unit, const Precision& precision);

}  // namespace sinter::reference
