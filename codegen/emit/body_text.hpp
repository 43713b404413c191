// The statements of a body as text, one named value a line.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "emit/kernel_names.hpp"
#include "emit/text_writer.hpp"
#include "schedule/packing.hpp"

namespace sinter {

class BodyText {
 public:
  // `packing`: which ports a thread holds as packs, in families that have them. `prepared`: values
  // that are made once for many elements (same_along); else those of a row.
  BodyText(const KernelSpec& spec, const KernelNames& names, const Body& body,
           const Packing* packing = nullptr, std::vector<bool> prepared = {});

  const Statement& statement(int i) const { return body_.statements[static_cast<std::size_t>(i)]; }
  int size() const { return static_cast<int>(body_.statements.size()); }
  const std::string& name(int i) const { return names_[static_cast<std::size_t>(i)]; }

  const Body& body() const { return body_; }
  // The number by which an element is divided, where it is the same for many and prepared once
  // (math::Divisor): the statement that it is, or -1. Its name is divisor_name().
  int divisor(int i) const;
  const std::string& divisor_name(int i) const {
    return divisor_names_[static_cast<std::size_t>(i)];
  }

  // True for a load or a store that goes through the thread's packs.
  bool packed(int i) const;
  // Whether a reduction is the largest or the smallest of integers as they lie in memory, which are
  // compared as such: as f64 each takes a conversion and three comparisons.
  bool compares_integers(int reduction) const;
  // The struct of math.cuh that divides by it.
  std::string_view divisor_type(int i) const;
  // True for a value that is the same for a segment of a row, made of reductions over it.
  bool of_segment(int i) const { return of_segment_[static_cast<std::size_t>(i)]; }
  // Of what makes or stores such a value; elements store it each for itself where their places
  // differ.
  bool runs_once_a_segment(int i) const;
  // True for a load of the row that is fetched with its places.
  bool of_row(int i) const;
  // True for one of these whose packs pass through a tile in shared memory.
  bool staged(int i) const;
  // Pointwise: true for a store of what was loaded from packs of the same type: the bits are
  // copied.
  bool copied(int i) const;
  // The ports whose elements lie in the pack of `port`, with its own where there are others.
  std::vector<int> ports_of_pack(int port) const;
  // A load whose elements lie in the pack of another port: that one's load gives them.
  bool part(int i) const;
  // True for a gather whose neighbours are computed when a place is fetched.
  bool gathered(int i) const;
  // "sinter::resample(args.x, c, fragment.resample);"
  std::string fetch_gathered(int gather) const;
  // True for random numbers that are drawn for a whole place.
  bool drawn(int i) const;
  // The call that draws them.
  std::string draw(int i) const;
  // The one random statement of a body whose number, 0 or 1, the function gets as `drawn`, where
  // its callers run the generator once for several elements; -1: none.
  void take_drawn(int i) { taken_ = i; }
  int taken() const { return taken_; }
  // Or the loads whose values the function gets as `beside`.
  void take_beside(std::vector<int> loads) { beside_ = std::move(loads); }
  // f32 sums of products are rounded once.
  void fuse_products() { fuses_products_ = true; }
  // Constants are written as they are, for formulas that compilers make shorter with them.
  void write_constants() { writes_constants_ = true; }
  std::string constant(const Statement& scalar) const;
  // Accumulator 0 is the sum, times this factor.
  void scale_sums(std::string_view factor) { factor_ = factor; }
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
  bool one_of_segment(const Statement& s) const;
  std::string condition(const Statement& s) const;
  std::string accumulation(const Statement& s) const;
  std::string expression(int i) const;
  // Which element of the place's pack, or of what is contiguous at the place, a load or store
  // means.
  std::string element(const Statement& s) const;
  std::string pointer(const Statement& s) const;
  std::string operand(const Statement& user, std::size_t arg) const;
  std::string cast(std::string value, DataType from, DataType to) const;
  std::string load(const Statement& s, int i) const;
  std::string pointwise(const Statement& s, int i) const;
  int fused_product(const Statement& s) const;
  bool scaled(const Statement& s) const;
  std::string convert(const Statement& s) const;
  std::string random(int i) const;
  std::string gather(const Statement& s, int i) const;
  std::string gather_operands(const Gather& g) const;
  std::string integer(int port) const;

  const KernelSpec& spec_;
  const KernelNames& kernel_;
  const Body& body_;
  const Packing* packing_;
  std::vector<bool> prepared_;
  int taken_ = -1;
  bool writes_constants_ = false;
  std::vector<int> beside_;
  bool fuses_products_ = false;
  std::string factor_;
  std::vector<std::string> names_, divisor_names_;
  std::vector<bool> of_segment_;
};

// The least x for which (x + 0.5) 2^-32 < probability does not hold, up to 2^32.
std::uint64_t bernoulli_limit(double probability);

// The struct in Config that gives a random statement its logical index.
std::string random_access_name(const std::string& value_name);
// The struct in Config with the windows in which a reduction takes elements.
std::string inside_access_name(const std::string& reduction_name);

}  // namespace sinter
