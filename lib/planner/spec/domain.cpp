#include "planner/spec/domain.hpp"

#include <algorithm>
#include <limits>
#include <vector>

#include "plan/access.hpp"
#include "schedule/contraction/index_order.hpp"
#include "schedule/contraction/mma.hpp"

namespace sinter {
namespace {

// Everything in a spec that is indexed by the domain.
class Indexed {
 public:
  explicit Indexed(KernelSpec& spec) : spec_(spec) {
    for (auto& p : spec.ports) accesses_.push_back(&p.access);
    for (auto& c : spec.cross_row_reductions) accesses_.push_back(&c.result.access);
    for (Body* body : spec.bodies())
      for (auto& s : body->statements) {
        if (!s.access.stride.empty()) accesses_.push_back(&s.access);
        if (s.kind == StatementKind::index) indices_.push_back(&s.dim);
      }
  }

  bool fixed(int i) const {  // a statement reads this index; gathers read all
    if (!spec_.gathers.empty()) return true;
    return std::any_of(indices_.begin(), indices_.end(), [&](const int* d) { return *d == i; });
  }

  // Everywhere a step along index i is as far as all of those along index j.
  bool steps_over(int i, int j) const {
    const std::int64_t n = spec_.extent[j];
    for (const Access* a : accesses_) {
      if (a->stride[i] != a->stride[j] * n) return false;
      for (const auto& w : a->windows)
        if (w.coefficient[i] != w.coefficient[j] * n) return false;
    }
    return true;
  }

  bool joinable(int i) const { return steps_over(i, i + 1); }  // i and i + 1 step as one

  void join(int i) {
    spec_.extent[i + 1] *= spec_.extent[i];
    if (KIndex* const k = k_index(i); k && *k != k[1]) k[1] = KIndex::channels;
    erase(i);
  }

  void erase(int i) {
    const auto without = [i](Dims& d) {
      Dims r;
      for (int j = 0; j < d.size(); ++j)
        if (j != i) r.push_back(d[j]);
      d = r;
    };
    if (KIndex* const k = k_index(i)) {
      auto& all = spec_.contraction().k_indices;
      all.erase(all.begin() + (k - all.data()));
    }
    without(spec_.extent);
    for (Access* a : accesses_) {
      without(a->stride);
      for (auto& w : a->windows) without(w.coefficient);
    }
    for (int* d : indices_)
      if (*d > i) --*d;
  }

  void swap(int i, int j) {
    const auto exchange = [i, j](Dims& d) { std::swap(d[i], d[j]); };
    if (KIndex* const x = k_index(i), * const y = k_index(j); x && y) std::swap(*x, *y);
    exchange(spec_.extent);
    for (Access* a : accesses_) {
      exchange(a->stride);
      for (auto& w : a->windows) exchange(w.coefficient);
    }
    const auto renumbered = [i, j](auto d) { return d == i ? j : d == j ? i : d; };
    for (int* d : indices_) *d = renumbered(*d);
    for (auto& g : spec_.gathers)
      for (auto& d : g.indices) d = renumbered(d);
  }

  // How far apart neighbours along index i lie, where most memory is moved: the operand of a
  // gather, of which each result reads several elements, or the widest port.
  std::int64_t step(int i) const {
    if (spec_.extent[i] == 1) return std::numeric_limits<std::int64_t>::max();
    if (!spec_.gathers.empty()) {
      const Gather& g = spec_.gathers.front();
      for (int d = 0; d < g.output_dim.size(); ++d)
        if (g.index(d) == i && g.strides[0][d] != 0) return g.strides[0][d];
    }
    const Access* widest = nullptr;
    int most = -1;
    for (const auto& p : spec_.ports) {
      int used = p.written ? 1 : 0;
      for (int j = 0; j < p.access.stride.size(); ++j) used += p.access.stride[j] != 0 ? 2 : 0;
      if (used > most) most = used, widest = &p.access;
    }
    if (!widest) return 0;
    if (widest->stride[i] != 0) return widest->stride[i];
    for (const auto& w : widest->windows)
      if (w.coefficient[i] != 0) return w.stride;
    return 0;
  }

 private:
  // What index i of the domain runs over, where it is one of k, which are the last ones.
  KIndex* k_index(int i) const {
    ContractionSpec* const c = spec_.as_contraction();
    const int first = c ? spec_.extent.size() - c->k() : 0;
    return c && i >= first ? &c->k_indices[static_cast<std::size_t>(i - first)] : nullptr;
  }

  KernelSpec& spec_;
  std::vector<Access*> accesses_;
  std::vector<int*> indices_;
};

}  // namespace

void simplify_domain(KernelSpec& spec) {
  // Renumbered rows are no function of the index; of gathers, only resampling knows its indices by
  // number.
  if (const auto* c = spec.as_contraction(); c && c->rows.on) return;
  for (const auto& g : spec.gathers)
    if (g.indices.empty()) return;
  for (const auto& p : spec.ports)
    if (!p.access.via.empty()) return;
  Indexed indexed(spec);
  std::vector<int*> groups;  // sizes of the index groups, in order
  int whole = spec.extent.size(), rows = 0, kinds = 0, last = 0;
  std::visit(Overloaded{[&](PointwiseSpec&) { groups = {&whole}; },
                        [&](RowwiseSpec& r) {
                          // Those that tell kinds of rows apart stay behind the others.
                          rows = column_kinds_from(spec);
                          kinds = r.outer_rank - rows;
                          last = whole - r.outer_rank;
                          groups = {&rows, &kinds, &last};
                        },
                        [&](ContractionSpec& c) {
                          last = c.k();
                          groups = {&c.batch, &c.m, &c.n, &last};
                        },
                        [](auto&) {}},  // each index has a meaning of its own
             spec.family);
  int begin = 0;
  for (int* size : groups) {
    for (int i = begin; i < begin + *size;)
      if (spec.extent[i] == 1 && !indexed.fixed(i)) {
        indexed.erase(i);
        --*size;
      } else {
        ++i;
      }
    for (int i = begin + 1; i < begin + *size; ++i)  // insertion sort: the largest step outermost
      for (int j = i; j > begin && indexed.step(j - 1) < indexed.step(j); --j)
        indexed.swap(j - 1, j);
    for (int i = begin; i + 1 < begin + *size;)
      if (!indexed.fixed(i) && !indexed.fixed(i + 1) && indexed.joinable(i)) {
        indexed.join(i);
        --*size;
      } else {
        ++i;
      }
    begin += *size;
  }
  if (spec.as_rowwise()) spec.rowwise().outer_rank = rows + kinds;
}

namespace {

// A tile of CUDA cores has 64 rows, and takes the time in which about so many rows are summed
// one by one (estimated: what they read comes from memory each time).
constexpr std::int64_t kFewRows = 8;

// Batch index i becomes the index of rows (columns) or a part of it. False where there is one that
// it does not step together with.
bool leave_batch(KernelSpec& spec, int i, bool columns, const DeviceModel& device) {
  ContractionSpec& c = spec.contraction();
  int& size = columns ? c.n : c.m;
  if (size > 1 || (size == 0 && spec.extent[i] <= kFewRows && !plan_mma(spec, device)))
    return false;
  Indexed indexed(spec);
  const int own = columns ? c.first_n() : c.first_m();  // where the group begins
  bool outer = false;
  if (size == 1) {
    outer = indexed.steps_over(i, own);
    if (indexed.fixed(i) || indexed.fixed(own) || !(outer || indexed.steps_over(own, i)))
      return false;
  }
  for (int j = i; j + 1 < own; ++j) indexed.swap(j, j + 1);
  --c.batch;
  if (size++ == 0) return true;
  if (!outer) indexed.swap(own - 1, own);
  indexed.join(own - 1);
  --size;
  return true;
}

// Of the batch indices on which an operand does not depend, makes one part of the rows (columns).
bool leave_batch(KernelSpec& spec, bool columns, const DeviceModel& device) {
  const ContractionSpec& c = spec.contraction();
  const auto constant = [&](int i) {
    return std::none_of(c.products.begin(), c.products.end(), [&](const Product& p) {
      return depends_on(spec, columns ? p.a.body : p.b.body, i);
    });
  };
  std::vector<int> indices;
  for (int i = c.batch - 1; i >= 0; --i)
    if (spec.extent[i] > 1 && constant(i)) indices.push_back(i);
  // Where there is one row, the longest takes its place.
  std::stable_sort(indices.begin(), indices.end(),
                   [&](int i, int j) { return spec.extent[i] > spec.extent[j]; });
  return std::any_of(indices.begin(), indices.end(),
                     [&](int i) { return leave_batch(spec, i, columns, device); });
}

}  // namespace

void join_batches(KernelSpec& spec, const DeviceModel& device) {
  if (spec.contraction().rows.on || reads_joined_indices(spec) ||
      count(spec.extent, 0, spec.extent.size()) == 0)
    return;
  for (const bool columns : {false, true})
    while (leave_batch(spec, columns, device)) {
    }
}

void cut_index(KernelSpec& spec, int d, std::int64_t parts, std::int64_t size) {
  const std::int64_t extent = spec.extent[d];
  const auto cut = [&](Dims& dims) { dims.insert(0, dims[d] * size); };
  const auto cut_access = [&](Access& a, bool in_memory) {
    const std::int64_t stride = a.stride[d];
    for (auto& w : a.windows) cut(w.coefficient);
    cut(a.stride);
    if (!in_memory || stride == 0 || parts * size == extent) return;
    a.stride[0] = a.stride[d + 1] = 0;
    Window w;
    w.coefficient = Dims::filled(a.stride.size(), 0);
    w.coefficient[0] = size;
    w.coefficient[d + 1] = 1;
    w.extent = extent;
    w.stride = stride;
    a.windows.push_back(std::move(w));
  };
  for (auto& p : spec.ports) cut_access(p.access, true);
  const auto cut_statement = [&](Statement& s) {
    if (s.kind == StatementKind::index) ++s.dim;
    if (s.kind == StatementKind::reduce && s.access.stride.empty())
      s.access.stride = Dims::filled(spec.extent.size(), 0);
    if (!s.access.stride.empty()) cut_access(s.access, false);
    if (s.kind != StatementKind::reduce || parts * size == extent) return;
    Window w;
    w.coefficient = Dims::filled(s.access.stride.size(), 0);
    w.coefficient[0] = size;
    w.coefficient[d + 1] = 1;
    w.extent = extent;
    s.access.windows.push_back(std::move(w));
  };
  for (Body* body : spec.bodies())
    for (auto& s : body->statements) cut_statement(s);
  spec.extent[d] = size;
  spec.extent.insert(0, parts);
}

void keep_part(KernelSpec& spec, int d, std::int64_t start, std::int64_t length) {
  const auto move = [&](Access& a) {
    if (a.stride.empty()) return;
    a.offset += a.stride[d] * start;
    for (auto& w : a.windows) w.base += w.coefficient[d] * start;
  };
  for (auto& p : spec.ports) move(p.access);
  for (Body* body : spec.bodies())
    for (auto& s : body->statements) move(s.access);
  spec.extent[d] = length;
}

void move_index(KernelSpec& spec, int from, int to) {
  Indexed indexed(spec);
  for (int i = from; i > to; --i) indexed.swap(i - 1, i);
}

bool join_indices(KernelSpec& spec, int i) {
  // Reductions of all that there is have strides of 0.
  const auto has_access = [](const Statement& s) {
    const Dims& steps = s.access.stride;
    return !s.access.windows.empty() ||
           std::any_of(steps.begin(), steps.end(), [](std::int64_t n) { return n != 0; });
  };
  // Of rows without elements the number of an element (Access::via) does not say which row it is
  // in.
  if (count(spec.extent) == 0) return false;
  if (!spec.gathers.empty() || !spec.cross_row_reductions.empty()) return false;
  for (const Body* body : spec.bodies())
    for (const auto& s : body->statements)
      if (has_access(s) || (s.kind == StatementKind::index && (s.dim == i || s.dim == i + 1)))
        return false;
  for (const auto& p : spec.ports)
    if (!p.access.windows.empty()) return false;
  const auto erase = [i](Dims& dims) {
    Dims left;
    for (int j = 0; j < dims.size(); ++j)
      if (j != i) left.push_back(dims[j]);
    dims = left;
  };
  const std::int64_t outer = spec.extent[i], inner = spec.extent[i + 1];
  for (auto& p : spec.ports) {
    Access& a = p.access;
    if (!a.via.empty()) continue;  // split from the number of the element, which stays
    if (a.stride[i] == inner * a.stride[i + 1])
      erase(a.stride);
    else
      a.via = spec.extent;
  }
  for (Body* body : spec.bodies())
    for (auto& s : body->statements) {
      if (s.kind == StatementKind::index && s.dim > i) --s.dim;
      if (!s.access.stride.empty()) erase(s.access.stride);
    }
  erase(spec.extent);
  spec.extent[i] = outer * inner;
  return true;
}

void drop_unused(KernelSpec& spec) {
  const auto drop = [&](auto& list, const auto& each_use) {
    std::vector<int> place(list.size(), -1);
    each_use([&](int& p) { place[static_cast<std::size_t>(p)] = 0; });
    std::remove_reference_t<decltype(list)> kept;
    for (std::size_t i = 0; i < place.size(); ++i) {
      if (place[i] < 0) continue;
      place[i] = static_cast<int>(kept.size());
      kept.push_back(std::move(list[i]));
    }
    list = std::move(kept);
    each_use([&](int& p) { p = place[static_cast<std::size_t>(p)]; });
  };
  const auto each_number = [&](const auto& use) {
    for (Body* body : spec.bodies())
      for (auto& s : body->statements)
        for (int* p : {&s.port, &s.port2}) use(s, *p);
  };
  // Of a random number, ports that are negative name scalars.
  drop(spec.ports, [&](const auto& use) {
    const auto use_port = [&](int& p) {
      if (p >= 0) use(p);
    };
    each_number([&](const Statement& s, int& p) {
      if (names_ports(s)) use_port(p);
    });
    for (auto& g : spec.gathers)
      for (int& p : g.ports) use_port(p);
    for (auto& c : spec.cross_row_reductions) use_port(c.port);
    std::visit(
        [&](auto& family) {
          if constexpr (requires { family.own_ports(family); })
            for (int* p : family.own_ports(family)) use_port(*p);
        },
        spec.family);
  });
  drop(spec.scalars, [&](const auto& use) {
    each_number([&](const Statement& s, int& p) {
      if (p >= 0 && s.kind == StatementKind::scalar) use(p);
      if (p >= 0 || s.kind != StatementKind::random) return;
      int scalar = -1 - p;
      use(scalar);
      p = -1 - scalar;
    });
  });
}

namespace {

// Whether neighbours along `e` are every second element, between which those along `d` lie.
bool interleaves(const Access& a, int d, int e) { return a.stride[d] == 1 && a.stride[e] == 2; }

// An index of two values whose elements lie beside each other in some tensors, and far apart in
// others, where another index steps by one (pixels that are shuffled into a larger image); -1 where
// there is none. All must step plainly.
int index_of_pairs(const KernelSpec& spec) {
  for (const auto& p : spec.ports)
    if (!p.access.windows.empty() || !p.access.via.empty() || p.together > 1) return -1;
  for (const auto& s : spec.body.statements)
    if (s.kind == StatementKind::random || s.kind == StatementKind::index) return -1;
  const auto any = [&](const auto& holds) {
    return std::any_of(spec.ports.begin(), spec.ports.end(),
                       [&](const KernelPort& p) { return holds(p.access); });
  };
  const int rank = spec.extent.size();
  for (int d = 0; d < rank; ++d)
    for (int e = 0; e < rank; ++e) {
      if (spec.extent[d] != 2 || d == e) continue;
      if (any([&](const Access& a) { return interleaves(a, d, e); }) &&
          any([&](const Access& a) { return a.stride[e] == 1; }) &&
          !any([&](const Access& a) { return a.stride[d] == 1 && a.stride[e] != 2; }))
        return d;
    }
  return -1;
}

// Both values of such an index are computed at one place.
void unroll_pairs(KernelSpec& spec) {
  const int d =
      spec.gathers.empty() && spec.cross_row_reductions.empty() ? index_of_pairs(spec) : -1;
  if (d < 0) return;
  const auto ports = spec.ports.size(), statements = spec.body.statements.size();
  // Of what does not step with the index there is one.
  std::vector<int> second(ports);
  for (std::size_t i = 0; i < ports; ++i) {
    second[i] = static_cast<int>(i);
    if (spec.ports[i].access.stride[d] == 0) continue;
    second[i] = static_cast<int>(spec.ports.size());
    KernelPort port = spec.ports[i];
    port.access.offset += port.access.stride[d];
    spec.ports.push_back(std::move(port));
  }
  for (std::size_t i = 0; i < statements; ++i) {
    Statement s = spec.body.statements[i];
    if (is_load(s) || is_store(s)) s.port = second[static_cast<std::size_t>(s.port)];
    for (int& a : s.args) a += static_cast<int>(statements);
    spec.body.statements.push_back(std::move(s));
  }
  for (auto& p : spec.ports) p.access.stride[d] = 0;
  spec.extent[d] = 1;
  simplify_domain(spec);
}

}  // namespace

void join_pairs(KernelSpec& spec) {
  unroll_pairs(spec);
  const int last = spec.extent.size() - 1;
  const auto every_second = [&](const KernelPort& p) {
    const Access& a = p.access;
    return a.windows.empty() && a.via.empty() && a.stride[last] == 2;
  };
  const auto beside = [&](const KernelPort& a, const KernelPort& b) {
    return a.tensor == b.tensor && a.written == b.written && a.type == b.type &&
           a.access.stride == b.access.stride && a.access.offset % 2 == 0 &&
           b.access.offset == a.access.offset + 1;
  };
  if (last < 0 || !spec.gathers.empty()) return;
  for (std::size_t i = 0; i < spec.ports.size(); ++i)
    for (std::size_t j = 0; j < spec.ports.size(); ++j) {
      KernelPort& port = spec.ports[i];
      if (!every_second(port) || !beside(port, spec.ports[j])) continue;
      port.together = 2;
      for (auto& s : spec.body.statements)
        if ((is_load(s) || is_store(s)) && s.port == static_cast<int>(j)) {
          s.port = static_cast<int>(i);
          s.element = 1;
        }
    }
  drop_unused(spec);
}

}  // namespace sinter
