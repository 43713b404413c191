#include "planner/operands.hpp"

#include <algorithm>

#include "emit/tensor_cores.hpp"
#include "plan/access.hpp"
#include "planner/domain.hpp"

namespace sinter {
namespace {

// Measured on an H200, per microsecond: operations on operands that pass through registers at odd
// addresses, and on the accelerator's; bytes that a copy of odd rows moves.
constexpr double kByRegisters = 60e6, kByAccelerator = 500e6, kCopied = 2.6e6;
constexpr double kLaunch = 2;

double microseconds(const KernelSpec& copy) {
  double bytes = kLaunch * kCopied;
  for (const auto& p : copy.ports)
    bytes += static_cast<double>(count(copy.extent, 0, copy.extent.size())) * info(p.type).bytes;
  return bytes / kCopied;
}

// One operand of the contraction as a copy with aligned rows. `row`: its own group of indices.
class OperandCopy {
 public:
  OperandCopy(KernelSpec& contraction, Body& body, int row, int rows)
      : contraction_(contraction), body_(body) {
    const Access& a = port().access;
    for (int i = 0; i < contraction.batch; ++i)
      if (a.stride[i] != 0) indices_.push_back(i);
    std::vector<int> two;  // in the order of memory
    for (int i = row; i < row + rows; ++i) two.push_back(i);
    two.push_back(contraction.extent.size() - 1);
    if (rows > 0 && a.stride[two.front()] == 1) std::reverse(two.begin(), two.end());
    indices_.insert(indices_.end(), two.begin(), two.end());
  }

  // Makes the contraction read the copy.
  KernelSpec make(Temporaries& temporaries) {
    const KernelPort& from = port();
    KernelSpec copy;
    copy.family = Family::pointwise;
    copy.nodes = contraction_.nodes;
    KernelPort source = from;
    source.access.stride = {};
    Dims padded;
    for (int i : indices_) {
      copy.extent.push_back(contraction_.extent[i]);
      padded.push_back(contraction_.extent[i]);
      source.access.stride.push_back(from.access.stride[i]);
    }
    const std::int64_t line = 16 / info(from.type).bytes;
    padded.back() = (padded.back() + line - 1) / line * line;
    Access written;
    written.stride = packed_strides(padded);
    copy.ports = {source, temporaries.add(from.name + "_aligned", from.type, padded, written)};
    Statement load = body_.statements.front();
    load.port = 0;
    Statement store = load;
    store.kind = StatementKind::store;
    store.label.clear();
    store.port = 1;
    store.args.push_back(0);
    copy.body.statements = {load, store};

    KernelPort aligned = copy.ports[1];
    aligned.written = false;
    aligned.access.stride = Dims::filled(contraction_.extent.size(), 0);
    for (std::size_t i = 0; i < indices_.size(); ++i)
      aligned.access.stride[indices_[i]] = written.stride[static_cast<int>(i)];
    body_.statements.front().port = static_cast<int>(contraction_.ports.size());
    contraction_.ports.push_back(std::move(aligned));
    simplify_domain(copy);
    return copy;
  }

 private:
  const KernelPort& port() const {
    return contraction_.ports[static_cast<std::size_t>(body_.statements.front().port)];
  }

  KernelSpec& contraction_;
  Body& body_;
  std::vector<int> indices_;
};

// Ports that nothing reads any more.
void drop_unused_ports(KernelSpec& spec) {
  std::vector<int> place(spec.ports.size(), -1);
  for (const Body* body : {&spec.body, &spec.a, &spec.b})
    for (const auto& s : body->statements)
      for (int p : {s.port, s.port2})
        if (p >= 0 && s.kind != StatementKind::scalar) place[static_cast<std::size_t>(p)] = 0;
  std::vector<KernelPort> kept;
  for (std::size_t i = 0; i < place.size(); ++i) {
    if (place[i] < 0) continue;
    place[i] = static_cast<int>(kept.size());
    kept.push_back(std::move(spec.ports[i]));
  }
  spec.ports = std::move(kept);
  for (Body* body : {&spec.body, &spec.a, &spec.b})
    for (auto& s : body->statements)
      for (int* p : {&s.port, &s.port2})
        if (*p >= 0 && s.kind != StatementKind::scalar) *p = place[static_cast<std::size_t>(*p)];
}

}  // namespace

std::vector<KernelSpec> copy_operands(KernelSpec spec, std::string_view architecture,
                                      Temporaries& temporaries) {
  const bool candidate = architecture == "sm_90a" && spec.family == Family::contraction &&
                         spec.k == 1 && spec.m <= 1 && spec.n <= 1 && spec.gathers.empty() &&
                         plainly_loaded(spec, spec.a) && plainly_loaded(spec, spec.b);
  if (!candidate || plan_tensor_cores(spec, {})) return {std::move(spec)};
  const int m = spec.batch, n = m + spec.m;
  double least =
      count(spec.extent, 0, spec.extent.size()) * 2.0 * (1 / kByRegisters - 1 / kByAccelerator);
  // One of them may do as it is.
  for (const bool copy_a : {false, true})
    for (const bool copy_b : {false, true}) {
      if (!copy_a && !copy_b) continue;
      KernelSpec copied = spec;
      Temporaries tried = temporaries;
      std::vector<KernelSpec> kernels;
      if (copy_a) kernels.push_back(OperandCopy(copied, copied.a, m, spec.m).make(tried));
      if (copy_b) kernels.push_back(OperandCopy(copied, copied.b, n, spec.n).make(tried));
      double us = 0;
      for (const auto& k : kernels) us += microseconds(k);
      drop_unused_ports(copied);
      if (us > least || !plan_tensor_cores(copied, {})) continue;
      kernels.push_back(std::move(copied));
      temporaries = std::move(tried);
      return kernels;
    }
  return {std::move(spec)};
}

}  // namespace sinter
