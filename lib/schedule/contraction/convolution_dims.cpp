#include "schedule/contraction/convolution_dims.hpp"

#include <algorithm>
#include <cstdlib>
#include <numeric>

#include "plan/access.hpp"
#include "schedule/contraction/held_type.hpp"

namespace sinter {
namespace {

bool contains(const std::vector<int>& list, int x) {
  return std::find(list.begin(), list.end(), x) != list.end();
}

std::optional<ImageDim> windowed_dim(const Window& w, const ConvolutionRoles& r) {
  ImageDim d;
  d.base = w.base;
  d.divisor = w.divisor;
  d.extent = w.extent;
  d.stride = w.stride;
  for (int i = 0; i < w.coefficient.size(); ++i) {
    if (w.coefficient[i] == 0) continue;
    if (contains(r.pixels, i) && d.pixel_index < 0) {
      d.pixel_index = i;
      d.pixel = w.coefficient[i];
    } else if (contains(r.taps, i) && d.tap_index < 0) {
      d.tap_index = i;
      d.tap = w.coefficient[i];
    } else if (contains(r.batch, i)) {
      d.parts.emplace_back(i, w.coefficient[i]);
    } else {
      return {};
    }
  }
  if ((d.pixel_index < 0 && (!r.parts_alone || d.parts.empty())) || d.pixel < 1) return {};
  if (d.divisor > 1 && d.pixel != 1) return {};
  return d;
}

}  // namespace

const KernelPort* loaded_port(const KernelSpec& spec, const ProductOperand& operand, int& number) {
  const KernelPort* const p = loaded_as_it_is(spec, operand.body);
  if (p) number = operand.body.statements.front().port;
  return p;
}

bool is_single_product(const ContractionSpec& c) {
  return c.products.size() == 1 && !c.rows.on &&
         (c.zero_dominates == ZeroOf::neither || c.marked_zeros);
}

bool is_plain_product(const ContractionSpec& c) {
  return is_single_product(c) && !c.marked_zeros && c.accumulate == DataType::f32;
}

bool sums_as_right_in_f32(const KernelSpec& spec, DataType a, DataType b) {
  const ContractionSpec& c = spec.contraction();
  if (is_floating(a) || is_floating(b)) return c.accumulate == DataType::f32;
  return static_cast<double>(count(spec.extent, c.first_k(), spec.extent.size())) * largest_of(a) *
             largest_of(b) <=
         0x1p24;
}

void scale_in_f32(KernelSpec& spec) {
  std::vector<Statement> all = spec.body.statements;
  const auto at = [&](int i) -> Statement& { return all[static_cast<std::size_t>(i)]; };
  const auto uses = [](const Statement& s, int i) {
    return std::find(s.args.begin(), s.args.end(), i) != s.args.end();
  };
  std::vector<int> same(all.size());
  for (int i = 0; i < static_cast<int>(all.size()); ++i) {
    Statement& s = at(i);
    for (int& a : s.args) a = same[static_cast<std::size_t>(a)];
    same[static_cast<std::size_t>(i)] = i;
    if (s.kind == StatementKind::accumulator) s.arithmetic = DataType::f32;
    if (s.kind == StatementKind::convert && s.type == DataType::i32 &&
        at(s.args.front()).kind == StatementKind::accumulator)
      same[static_cast<std::size_t>(i)] = s.args.front();
    // What is rounded to f32 wherever it is used is as right in f32.
    const bool once = s.mode == PointwiseMode::mul || s.mode == PointwiseMode::add ||
                      s.mode == PointwiseMode::sub;
    if (s.kind == StatementKind::pointwise && once && s.arithmetic == DataType::f64 &&
        std::all_of(s.args.begin(), s.args.end(),
                    [&](int a) { return at(a).arithmetic == DataType::f32; }) &&
        std::all_of(all.begin(), all.end(), [&](const Statement& user) {
          return !uses(user, i) ||
                 (user.kind == StatementKind::convert && user.type == DataType::f32);
        }))
      s.arithmetic = DataType::f32;
  }
  // Stored as they are, or computed with in f64, sums stay integers.
  for (int i = 0; i < static_cast<int>(all.size()); ++i)
    if (at(i).kind == StatementKind::accumulator)
      for (const Statement& s : all)
        if (uses(s, i) && s.kind != StatementKind::convert &&
            !(s.kind == StatementKind::pointwise && s.arithmetic == DataType::f32))
          return;
  spec.body.statements = std::move(all);
}

void sum_in_f32(KernelSpec& spec) {
  spec.contraction().accumulate = DataType::f32;
  for (Statement& s : spec.body.statements)
    if (s.kind == StatementKind::accumulator) s.arithmetic = DataType::f32;
}

bool add_batch_and_k(const ContractionSpec& c, ConvolutionRoles& r) {
  for (int i = 0; i < c.batch; ++i) r.batch.push_back(i);
  for (int i = 0; i < c.k(); ++i) {
    const int index = c.first_k() + i;
    switch (c.k_indices[static_cast<std::size_t>(i)]) {
      case KIndex::pixels:
        r.pixels_in_k = true;
        r.pixels.push_back(index);
        break;
      case KIndex::filter_tap:
        r.taps.push_back(index);
        break;
      case KIndex::channels:
        r.channels.push_back(index);
        break;
      case KIndex::scale_block:
        return false;
    }
  }
  return true;
}

std::optional<std::vector<ImageDim>> image_dims(const KernelSpec& spec, const ConvolutionRoles& r,
                                                const Access& a, int& image_index,
                                                std::int64_t& offset) {
  std::vector<ImageDim> dims;
  std::vector<int> free_pixels = r.pixels, free_taps = r.taps;
  for (const Window& w : a.windows) {
    auto d = windowed_dim(w, r);
    if (!d) return {};
    if (d->pixel_index >= 0) {
      if (!contains(free_pixels, d->pixel_index) || a.stride[d->pixel_index] != 0) return {};
      std::erase(free_pixels, d->pixel_index);
    }
    if (d->tap_index >= 0) {
      if (!contains(free_taps, d->tap_index) || a.stride[d->tap_index] != 0) return {};
      std::erase(free_taps, d->tap_index);
    }
    dims.push_back(*d);
  }
  for (int t : free_taps) {  // beside the pixel index whose step is most like its own
    const std::int64_t step = std::abs(a.stride[t]);
    const auto unlike = [&](int p) {
      return std::max(step, a.stride[p]) / std::max<std::int64_t>(1, std::min(step, a.stride[p]));
    };
    const auto p = std::min_element(free_pixels.begin(), free_pixels.end(),
                                    [&](int x, int y) { return unlike(x) < unlike(y); });
    if (p == free_pixels.end() || step == 0 || a.stride[*p] < 1) return {};
    ImageDim d;
    d.pixel_index = *p;
    d.tap_index = t;
    d.stride = std::gcd(step, a.stride[*p]);
    d.pixel = a.stride[*p] / d.stride;
    d.tap = a.stride[t] / d.stride;
    const std::int64_t reach = d.tap * (spec.extent[t] - 1);
    d.base = reach < 0 ? -reach : 0;
    offset -= d.base * d.stride;
    d.extent = d.pixel * (spec.extent[*p] - 1) + std::abs(reach) + 1;
    free_pixels.erase(p);
    dims.push_back(d);
  }
  // What is left steps by itself; the outermost pixel index tells images apart.
  image_index = -1;
  for (int p : free_pixels) {
    if (a.stride[p] < 1) return {};
    if (p == r.pixels.front() && r.pixels.size() > 1) {
      image_index = p;
      continue;
    }
    ImageDim d;
    d.pixel_index = p;
    d.stride = a.stride[p];
    d.extent = spec.extent[p];
    dims.push_back(d);
  }
  if (dims.empty() || dims.size() > kMostAxes) return {};
  std::sort(dims.begin(), dims.end(),
            [](const ImageDim& x, const ImageDim& y) { return x.pixel_index < y.pixel_index; });
  for (std::size_t i = 0; i < dims.size(); ++i)  // parts alone are outermost, as they stand now
    if (dims[i].pixel_index < 0 && (i > 0 || dims.size() == 1 || dims[i].stride < dims[1].stride))
      return {};
  return dims;
}

}  // namespace sinter
