// Operations that only move elements: reshape, transpose, slice, concatenate, page_gather, and
// block_mask, which spreads bits.
#include "reference/job.hpp"

namespace sinter::reference {
namespace {

// Copies runs of elements with their errors.
struct Sink {
  double *v, *e;
  void take(const View& view, const Dims& from, int axis, std::int64_t n, std::int64_t position) {
    const std::int64_t start = view.at(from), step = view.stride[axis];
    view.read(start, step, n, v + position);
    if (!e) return;
    if (view.error)
      view.read_errors(start, step, n, e + position);
    else
      std::fill_n(e + position, n, 0.0);
  }
  void put(std::int64_t position, double value, double error) {
    v[position] = value;
    if (e) e[position] = error;
  }
};

void reshape(const Job& job, const Dims& at, std::int64_t n, std::int64_t position, Sink& sink) {
  const Operand& x = job.in[0];
  const int last = x.dim.size() - 1;
  std::int64_t flat = row_major(at, job.dim);
  for (std::int64_t done = 0; done < n;) {
    const Dims from = coordinates(flat + done, x.dim);
    const std::int64_t part = std::min(n - done, x.dim[last] - from[last]);
    sink.take(x.view, from, last, part, position + done);
    done += part;
  }
}

void transpose(const Job& job, const Dims& at, std::int64_t n, std::int64_t position, Sink& sink) {
  const Dims& p = job.attributes<TransposeAttributes>().permutation;
  Dims from = at;
  for (int i = 0; i < p.size(); ++i) from[static_cast<int>(p[i])] = at[i];
  sink.take(job.in[0].view, from, static_cast<int>(p.back()), n, position);
}

void slice(const Job& job, const Dims& at, std::int64_t n, std::int64_t position, Sink& sink) {
  const auto& a = job.attributes<SliceAttributes>();
  const int last = at.size() - 1;
  Dims from = at;
  for (int i = 0; i <= last; ++i) from[i] = a.start[i] + at[i] * (a.step.empty() ? 1 : a.step[i]);
  View view = job.in[0].view;
  const std::int64_t step = a.step.empty() ? 1 : a.step[last];
  view.offset += from[last] * view.stride[last];
  view.stride[last] *= step;
  from[last] = 0;
  sink.take(view, from, last, n, position);
}

void concatenate(const Job& job, const Dims& at, std::int64_t n, std::int64_t position,
                 Sink& sink) {
  const int rank = at.size(), last = rank - 1;
  std::int64_t axis = *job.attributes<ConcatenateAttributes>().axis;
  if (axis < 0) axis += rank;
  const int a = static_cast<int>(axis);
  std::int64_t before = 0;  // where the part begins along the axis
  for (const Operand& part : job.in) {
    Dims from = at;
    from[a] -= before;
    before += part.dim[a];
    if (a != last) {
      if (from[a] < 0 || from[a] >= part.dim[a]) continue;
      sink.take(part.view, from, last, n, position);
      return;
    }
    // The run covers [from, from + n) of the part's axis, which may hold some of it.
    const std::int64_t low = std::max<std::int64_t>(from[a], 0),
                       high = std::min(from[a] + n, part.dim[a]);
    if (low >= high) continue;
    const std::int64_t skipped = low - from[a];
    from[a] = low;
    sink.take(part.view, from, last, high - low, position + skipped);
  }
}

// A table entry outside the pool belongs to keys that are masked away: nothing may depend on it.
void page_gather(const Job& job, const Dims& at, std::int64_t n, std::int64_t position,
                 Sink& sink) {
  const Operand &x = job.in[0], &table = job.in[1];
  const std::int64_t rows = x.dim[2];
  const double block = table.view.element({at[0], 0, at[2] / rows, 0}).value;
  if (!(block >= 0 && block < static_cast<double>(x.dim[0]))) {
    for (std::int64_t i = 0; i < n; ++i)
      sink.put(position + i, std::numeric_limits<double>::quiet_NaN(), kUntrusted);
    return;
  }
  sink.take(x.view, {static_cast<std::int64_t>(block), at[1], at[2] % rows, at[3]}, 3, n, position);
}

void block_mask(const Job& job, const Dims& at, std::int64_t n, std::int64_t position, Sink& sink) {
  constexpr std::int64_t tile = 128, tiles_a_byte = 8;
  Dims c = at;
  for (std::int64_t i = 0; i < n; ++i, ++c[3]) {
    const auto bits = static_cast<unsigned>(
        job.in[0].view.element({c[0], c[1], c[2] / tile, c[3] / (tile * tiles_a_byte)}).value);
    sink.put(position + i, bits >> (c[3] / tile % tiles_a_byte) & 1, 0);
  }
}

}  // namespace

void evaluate_layout(const Job& job, std::int64_t begin, std::int64_t end, double* v, double* e) {
  Sink sink{v, e};
  for_runs(job.box, begin, end, [&](const Dims& at, std::int64_t n, std::int64_t position) {
    switch (job.node->op) {
      case OpKind::reshape:
        return reshape(job, at, n, position, sink);
      case OpKind::transpose:
        return transpose(job, at, n, position, sink);
      case OpKind::slice:
        return slice(job, at, n, position, sink);
      case OpKind::concatenate:
        return concatenate(job, at, n, position, sink);
      case OpKind::page_gather:
        return page_gather(job, at, n, position, sink);
      default:
        return block_mask(job, at, n, position, sink);
    }
  });
}

}  // namespace sinter::reference
