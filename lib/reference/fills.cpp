// An input gets its role from the first port that reads it and has one; all else is a plain fill.
#include "reference/fills.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <limits>
#include <numeric>

#include "reference/box.hpp"
#include "reference/element.hpp"
#include "reference/forward_attention.hpp"
#include "reference/parallel.hpp"
#include "reference/samples.hpp"

namespace sinter {
namespace {

using reference::mix;

// FNV-1a: tells tensors of one graph apart.
std::uint64_t hash_name(std::string_view name) {
  std::uint64_t h = 0xcbf29ce484222325u;
  for (const char c : name) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return h;
}

double unit(std::uint64_t bits) { return static_cast<double>(bits >> 11) * 0x1p-53; }
// Irwin and Hall's sum of uniform numbers, four of 16 bits, with the variance of a normal one. No
// library function takes part, so that every platform has the same bits.
double normal(std::uint64_t bits) {
  double sum = 0;
  for (int i = 0; i < 4; ++i) sum += static_cast<double>(bits >> (16 * i) & 0xffff) + 0.5;
  return (sum * 0x1p-16 - 2) * 1.7320508075688772;
}

double limit_value(DataType type, std::uint64_t bits) {
  const auto& t = info(type);
  const double points[] = {0,
                           kInfinity,
                           std::numeric_limits<double>::quiet_NaN(),
                           1,
                           0.5,
                           3,
                           9.5,
                           90,
                           750,
                           1.9e19,
                           1.4e154,
                           8.6e37,
                           t.largest,
                           std::ldexp(1.0, t.min_exponent),
                           std::ldexp(1.0, t.min_exponent - t.precision + 1)};
  const double v = points[bits % std::size(points)];
  return bits >> 63 ? -v : v;
}

double plain_value(Fill fill, DataType type, std::uint64_t bits) {
  const auto small = static_cast<double>(bits % 9);
  switch (type) {
    case DataType::boolean:
      return static_cast<double>(bits >> 32 & 1);
    case DataType::u8:
      return small;
    case DataType::i8:
    case DataType::i32:
    case DataType::i64:
      return fill == Fill::ternary ? static_cast<double>(bits % 3) - 1 : small - 4;
    case DataType::f8e8m0:
      return std::ldexp(1.0, static_cast<int>(bits % 3) - 1);
    default:
      break;
  }
  switch (fill) {
    case Fill::normal:
      return 0.5 * normal(bits);
    case Fill::uniform:
      return unit(bits);
    case Fill::ternary:
      return static_cast<double>(bits % 3) - 1;
    case Fill::limits:
      return limit_value(type, bits);
    default: {
      const double exponent = 4 * normal(mix(bits));
      return std::ldexp(bits & 1 ? 1 + unit(bits) : -1 - unit(bits),
                        static_cast<int>(std::floor(exponent)));
    }
  }
}

double positive_value(Fill fill, DataType type, std::uint64_t bits) {
  if (fill == Fill::ternary || type == f8e8m0 || !is_floating(type))
    return std::ldexp(1.0, static_cast<int>(bits % 2));
  return 0.5 + unit(bits);
}

// ---- what an input means, from the ports that read it

enum class Role : std::uint8_t {
  plain,
  positive,
  epsilon,
  momentum,
  length_q,
  length_kv,
  small_integer,
  page_table,
  bits,
  token_offsets,
  token_index,
  window_index,
};

Role role_of(std::string_view port, OpKind op) {
  if (port == "INV_VARIANCE" || port == "PREV_RUNNING_VAR" || port == "SCALE" || port == "Scale")
    return Role::positive;
  if (port == "epsilon") return Role::epsilon;
  if (port == "MOMENTUM") return Role::momentum;
  if (port == "SEQ_LEN_Q") return Role::length_q;
  if (port == "SEQ_LEN_KV") return Role::length_kv;
  if (port == "Seed" || port == "Offset") return Role::small_integer;
  if (port == "Page_table_K" || port == "Page_table_V") return Role::page_table;
  if (port == "Block_mask") return Role::bits;
  if (port == "FirstTokenOffset") return Role::token_offsets;
  if (port == "CU_SEQ_LEN_Q" || port == "CU_SEQ_LEN_KV") return Role::token_offsets;
  if (port == "TokenIndex") return Role::token_index;
  if (port == "Index" && op == OpKind::resample_backward) return Role::window_index;
  return Role::plain;
}

struct Use {
  Role role = Role::plain;
  const Node* node = nullptr;
  int port = -1;
};

Use use_of(const Graph& graph, TensorId tensor) {
  for (const Node& node : graph.nodes())
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      if (node.inputs[i] != tensor || info(node.op).variadic) continue;
      const Role role = role_of(info(node.op).inputs[i].name, node.op);
      if (role != Role::plain) return {role, &node, static_cast<int>(i)};
    }
  return {};
}

std::int64_t extent(const Graph& graph, const Node& node, int port, int axis) {
  return graph[node.inputs[static_cast<std::size_t>(port)]].dim[axis];
}

// The keys that an attention sees, through its page table where it has one.
std::int64_t keys(const Graph& graph, const Node& node) {
  const int table = input_index(node.op, "Page_table_K");
  const std::int64_t rows = extent(graph, node, 1, 2);
  if (table < 0 || node.inputs[static_cast<std::size_t>(table)] < 0) return rows;
  return extent(graph, node, table, 2) * rows;
}

std::vector<std::int64_t> shuffled(std::int64_t n, std::uint64_t seed) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  for (std::int64_t i = n - 1; i > 0; --i)
    std::swap(order[static_cast<std::size_t>(i)],
              order[(seed = mix(seed)) % static_cast<std::uint64_t>(i + 1)]);
  return order;
}

// Valid positions for table entries 0 .. n-1: distinct as long as there are enough.
std::vector<std::int64_t> indices_below(std::int64_t limit, std::int64_t n, std::uint64_t seed) {
  std::vector<std::int64_t> result;
  if (limit <= 0) return std::vector<std::int64_t>(static_cast<std::size_t>(n), 0);
  const auto order = shuffled(limit, seed);
  for (std::int64_t i = 0; i < n; ++i) result.push_back(order[static_cast<std::size_t>(i % limit)]);
  return result;
}

// The ends of `groups` parts of `rows`, behind a 0: all alike, or of very different sizes with some
// empty ones among them.
std::vector<std::int64_t> ends_of_groups(std::int64_t rows, std::int64_t groups, bool alike,
                                         std::uint64_t seed) {
  constexpr std::int64_t kShares[] = {1, 0, 3, 1, 0, 14, 2};
  std::vector<std::int64_t> shares{0};
  for (std::int64_t i = 0; i < groups; ++i)
    shares.push_back(shares.back() +
                     (alike ? 1 : kShares[(seed = mix(seed)) % std::size(kShares)]));
  const std::int64_t all = shares.back();
  if (all == 0) shares.back() = 1;
  for (auto& end : shares) end = rows * end / std::max<std::int64_t>(all, 1);
  return shares;
}

class TensorFill {
 public:
  TensorFill(const Graph& graph, TensorId tensor, Fill fill, std::uint64_t seed)
      : graph_(graph),
        fill_(fill),
        type_(graph.type(tensor)),
        dim_(graph[tensor].dim),
        use_(use_of(graph, tensor)),
        seed_(mix(seed ^ hash_name(graph.label(tensor)))) {
    const std::int64_t n = count(dim_);
    if (use_.role == Role::page_table)
      indices_ =
          indices_below(extent(graph, *use_.node,
                               use_.port == input_index(use_.node->op, "Page_table_V") ? 2 : 1, 0),
                        n, seed_);
    if (use_.role == Role::token_index) indices_ = indices_below(tokens(), n, seed_);
    if (use_.role == Role::token_offsets)
      indices_ =
          ends_of_groups(rows(), std::max<std::int64_t>(n - 1, 1), fill == Fill::normal, seed_);
    if (use_.role == Role::window_index)
      for (auto w : std::get<ResampleAttributes>(use_.node->attributes).window) window_ *= w;
  }

  double value(std::int64_t element) const {
    const std::uint64_t bits =
        mix(seed_ + 0x9e3779b97f4a7c15u * static_cast<std::uint64_t>(element));
    switch (use_.role) {
      case Role::plain:
        return plain_value(fill_, type_, bits);
      case Role::positive:
        return positive_value(fill_, type_, bits);
      case Role::epsilon:
        return 0x1p-13;
      case Role::momentum:
        return 0.125;
      case Role::length_q:
        return static_cast<double>(extent(graph_, *use_.node, 0, 2));
      case Role::length_kv:
        return static_cast<double>(keys(graph_, *use_.node));
      case Role::small_integer:
        return static_cast<double>(bits % 1000);
      case Role::bits:
        return static_cast<double>(bits >> 32 & 255);
      case Role::page_table:
      case Role::token_index:
      case Role::token_offsets:
        return static_cast<double>(indices_[static_cast<std::size_t>(element)]);
      default:
        return static_cast<double>(bits % static_cast<std::uint64_t>(window_));
    }
  }

 private:
  std::int64_t tokens() const { return extent(graph_, *use_.node, 0, 1); }
  // Those that offsets share out.
  std::int64_t rows() const {
    if (use_.node->op == OpKind::moe_grouped_matmul) return graph_[use_.node->outputs[0]].dim[1];
    return extent(graph_, *use_.node,
                  use_.port == input_index(use_.node->op, "CU_SEQ_LEN_Q") ? 0 : 1, 2);
  }

  const Graph& graph_;
  Fill fill_;
  DataType type_;
  const Dims& dim_;
  Use use_;
  std::uint64_t seed_;
  std::vector<std::int64_t> indices_;
  std::int64_t window_ = 1;
};

void fill_tensor(const Graph& graph, TensorId tensor, Fill fill, std::uint64_t seed, void* memory) {
  std::memset(memory, 0xff, host_bytes(graph, tensor));
  const TensorFill values(graph, tensor, fill, seed);
  const Dims &dim = graph[tensor].dim, stride = graph.stride(tensor);
  const DataType type = graph.type(tensor);
  // Of elements of a broadcast view that share memory, the last alone.
  auto box = reference::Box::whole(dim);
  for (int i = 0; i < dim.size(); ++i)
    if (stride[i] == 0 && dim[i] > 1) box.set(i, dim[i] - 1, dim[i]);
  const Dims packed = packed_strides(dim);
  constexpr std::int64_t piece = 1 << 16;
  const std::int64_t n = box.volume();
  reference::parallel_for((n + piece - 1) / piece, [&](std::int64_t i) {
    const std::int64_t begin = i * piece, end = std::min(n, begin + piece);
    reference::for_runs(box, begin, end, [&](const Dims& at, std::int64_t length, std::int64_t) {
      std::int64_t to = 0, element = 0;
      for (int d = 0; d < at.size(); ++d) {
        to += at[d] * stride[d];
        element += at[d] * packed[d];
      }
      for (std::int64_t j = 0; j < length; ++j)
        store_element(type, memory, to + j * stride.back(), values.value(element + j));
    });
  });
}

}  // namespace

std::size_t host_bytes(const Graph& graph, TensorId tensor) {
  return static_cast<std::size_t>(span_elements(graph[tensor].dim, graph.stride(tensor)) *
                                  info(graph.type(tensor)).bytes);
}

Status fill_inputs(const Graph& graph, Fill fill, std::uint64_t seed, const HostPointers& memory) {
  for (const auto& [tensor, pointer] : memory)
    if (graph.is_input(tensor) && pointer) fill_tensor(graph, tensor, fill, seed, pointer);
  for (const Node& node : graph.nodes()) {
    if (node.op != OpKind::sdpa_backward) continue;
    Status done = reference::store_forward_results(graph, node, memory);
    SINTER_TRY(done);
  }
  return Done{};
}

HostPointers HostArrays::pointers() {
  HostPointers p;
  for (auto& [tensor, data] : bytes) p[tensor] = data.data();
  return p;
}

Result<HostArrays> random_inputs(const Graph& graph, Fill fill, std::uint64_t seed) {
  HostArrays arrays;
  for (std::size_t i = 0; i < graph.tensors().size(); ++i) {
    const auto t = static_cast<TensorId>(i);
    // Never empty: a tensor without elements has an address like any other.
    if (graph.is_input(t)) arrays.bytes[t].resize(std::max<std::size_t>(host_bytes(graph, t), 1));
  }
  Status filled = fill_inputs(graph, fill, seed, arrays.pointers());
  SINTER_TRY(filled);
  return arrays;
}

}  // namespace sinter
