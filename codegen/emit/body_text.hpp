// The statements of a body as text, one named value a line.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "emit/kernel_names.hpp"
#include "emit/text_writer.hpp"
#include "schedule/statement_forms.hpp"

namespace sinter {

class BodyText : public StatementForms {
 public:
  BodyText(const KernelSpec& spec, const KernelNames& names, const Body& body,
           const Packing* packing = nullptr, std::vector<bool> prepared = {});

  const std::string& name(int i) const { return names_[static_cast<std::size_t>(i)]; }

  // What divisor() says has a name, and a struct of math.cuh that divides by it.
  const std::string& divisor_name(int i) const {
    return divisor_names_[static_cast<std::size_t>(i)];
  }

  std::string_view divisor_type(int i) const;
  // "sinter::resample(args.x, c, fragment.resample);"
  std::string fetch_gathered(int gather) const;
  // The call that draws random numbers for a whole vector.
  std::string draw(int i) const;
  // The one random statement of a body whose number, 0 or 1, the function gets as `drawn`, where
  // its callers run the generator once for several elements; -1: none.
  void take_drawn(int i) { taken_ = i; }
  int taken() const { return taken_; }
  // Or the loads whose values the function gets as `beside`.
  void take_beside(std::vector<int> loads) { beside_ = std::move(loads); }
  // Constants are written as they are, for formulas that compilers make shorter with them.
  void write_constants() { writes_constants_ = true; }
  std::string constant(const Statement& scalar) const;
  // Remainders of which the quotient is small: sinter::NearMod.
  void take_near(std::vector<bool> remainders) { near_ = std::move(remainders); }
  // Accumulator 0 is the sum, times this factor.
  void scale_sums(std::string_view factor) {
    factor_ = factor;
    if (!factor.empty()) scale_sum();
  }
  // "sinter::bits_of_run<Drawn>(seed, offset, c, sinter::Bernoulli{..})": the numbers of its run.
  std::string run(int i) const;
  // "const float y = ...;", or the store or reduce.
  void print(TextWriter& out, int i) const;
  // "fragment.kept.y[e]", and "const float y = fragment.kept.y[e];": what an earlier phase has
  // left.
  std::string kept(int i) const;
  void print_kept(TextWriter& out, int i) const;
  // "y = ...;" for a value that is declared elsewhere.
  void print_assignment(TextWriter& out, int i) const;

 private:
  std::string condition(const Statement& s) const;
  std::string accumulation(const Statement& s) const;
  std::string expression(int i) const;
  // Which element of the vector's pack, or of what is contiguous at the vector, a load or store
  // means.
  std::string element(const Statement& s) const;
  std::string pointer(const Statement& s) const;
  std::string operand(const Statement& user, std::size_t arg) const;
  std::string cast(std::string value, DataType from, DataType to) const;
  std::string load(const Statement& s, int i) const;
  std::string pointwise(const Statement& s, int i) const;
  std::string convert(const Statement& s) const;
  std::string random(int i) const;
  std::string gather(const Statement& s, int i) const;
  std::string gather_operands(const Gather& g) const;
  std::string integer(int port) const;

  const KernelNames& kernel_;
  std::vector<bool> near_;
  int taken_ = -1;
  bool writes_constants_ = false;
  std::vector<int> beside_;
  std::string factor_;
  std::vector<std::string> names_, divisor_names_;
};

// The least x for which (x + 0.5) 2^-32 < probability does not hold, up to 2^32.
std::uint64_t bernoulli_limit(double probability);

// The struct in Config that gives a random statement its logical index.
std::string random_access_name(const std::string& value_name);
// The struct in Config with the windows in which a reduction takes elements.
std::string inside_access_name(const std::string& reduction_name);

}  // namespace sinter
