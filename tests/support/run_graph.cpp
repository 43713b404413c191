#include "support/run_graph.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "plan/plan_data.hpp"
#include "reference/element.hpp"
#include "runtime/bindings.hpp"
#include "support/random.hpp"

namespace sinter::test {
namespace {

// Calls visit(offset in elements) for every element.
template <class Visit>
void for_each_offset(const Dims& dim, const Dims& stride, const Visit& visit) {
  const std::int64_t n = count(dim);
  Dims at = Dims::filled(dim.size(), 0);
  std::int64_t offset = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    visit(offset);
    for (int d = dim.size(); d-- > 0;) {
      offset += stride[d];
      if (++at[d] < dim[d]) break;
      offset -= dim[d] * stride[d];
      at[d] = 0;
    }
  }
}

// Checking names the unnamed tensors, by which the lowered graph's are found.
Graph& checked(Graph& graph) {
  const Diagnostics d = graph.check();
  if (!d.empty()) throw std::runtime_error(d.front().message());
  return graph;
}

// Bytes of which the tensor's address is a multiple, and not of twice as many.
std::int64_t alignment(const Graph& graph, TensorId t) {
  return std::max<std::int64_t>(graph[t].alignment, info(graph.type(t)).bytes);
}

}  // namespace

GuardedBuffer::GuardedBuffer(std::size_t bytes, std::int64_t alignment)
    : storage_(bytes + 2 * kGuard + 2 * kAligned, kPattern), bytes_(bytes) {
  const auto start = reinterpret_cast<std::uintptr_t>(storage_.data()) + kGuard;
  offset_ = kGuard + (kAligned - start % kAligned) % kAligned;
  if (alignment < static_cast<std::int64_t>(kAligned))
    offset_ += static_cast<std::size_t>(alignment);
}

std::size_t GuardedBuffer::beyond_aligned() const {
  return reinterpret_cast<std::uintptr_t>(data()) % kAligned;
}

bool GuardedBuffer::guards_intact() const {
  const auto intact = [](std::byte b) { return b == kPattern; };
  return std::all_of(storage_.data(), data(), intact) &&
         std::all_of(data() + bytes_, storage_.data() + storage_.size(), intact);
}

GraphCase::GraphCase(Graph& graph, Fill fill, std::uint64_t seed)
    : lowered_(lower(checked(graph))) {
  auto arrays = random_inputs(graph, fill, seed);
  if (!arrays) throw std::runtime_error(arrays.error().message());
  for (auto& [t, bytes] : arrays->bytes) {
    make_ragged(graph, t, seed, bytes.data());
    const auto id = lowered().find(graph[t].name);
    if (!id) continue;  // no output depends on it, which the lowered graph need not keep
    const std::size_t size = host_bytes(graph, t);
    auto& buffer = inputs_.try_emplace(*id, size, alignment(graph, t)).first->second;
    std::memcpy(buffer.data(), bytes.data(), size);
    originals_[*id].assign(buffer.data(), buffer.data() + size);
  }
  for (std::size_t i = 0; i < lowered().tensors().size(); ++i) {
    const auto t = static_cast<TensorId>(i);
    if (lowered()[t].output)
      outputs_.try_emplace(t, host_bytes(lowered(), t), alignment(lowered(), t));
  }
}

// Sequences of any length up to the full one, experts with any number of rows.
void GraphCase::make_ragged(const Graph& graph, TensorId tensor, std::uint64_t seed,
                            std::byte* data) {
  for (const Node& n : graph.nodes())
    for (std::size_t i = 0; i < n.inputs.size(); ++i) {
      if (n.inputs[i] != tensor || info(n.op).variadic) continue;
      const std::string_view port = info(n.op).inputs[i].name;
      const bool packed = port == "CU_SEQ_LEN_Q" || port == "CU_SEQ_LEN_KV";
      const bool offsets = port == "FirstTokenOffset" || packed;
      if (!offsets && port != "SEQ_LEN_Q" && port != "SEQ_LEN_KV") continue;
      std::vector<std::int64_t> at;
      for_each_offset(graph[tensor].dim, graph.stride(tensor),
                      [&](std::int64_t offset) { at.push_back(offset); });
      const DataType type = graph.type(tensor);
      if (at.empty()) return;
      const auto full = static_cast<std::int64_t>(load_element(type, data, at.back()));
      Random random(seed + static_cast<std::uint64_t>(tensor));
      if (random.chance(0.3)) return;
      std::vector<std::int64_t> values;
      for (std::size_t k = 0; k < at.size(); ++k) values.push_back(random.between(0, full));
      if (offsets) {
        std::sort(values.begin(), values.end());
        // Tokens may lie before and behind all sequences; experts have all rows.
        if (!packed) values.front() = 0, values.back() = full;
      }
      for (std::size_t k = 0; k < at.size(); ++k)
        store_element(type, data, at[k], static_cast<double>(values[k]));
      return;
    }
}

HostPointers GraphCase::inputs() const {
  HostPointers p;
  for (const auto& [t, buffer] : inputs_) p[t] = const_cast<std::byte*>(buffer.data());
  return p;
}

HostPointers GraphCase::memory() {
  HostPointers p = inputs();
  for (auto& [t, buffer] : outputs_) p[t] = buffer.data();
  return p;
}

void GraphCase::clear_outputs() {
  for (auto& [t, buffer] : outputs_)
    std::memset(buffer.data(), static_cast<int>(GuardedBuffer::kPattern), buffer.size());
}

void GraphCase::take_constants(const GraphCase& from,
                               const std::vector<Plan::TensorInfo>& written) {
  for (auto& [t, buffer] : inputs_)
    if (lowered()[t].constant) {
      std::memcpy(buffer.data(), from.inputs_.at(t).data(), buffer.size());
      originals_[t] = from.originals_.at(t);
    }
  for (auto& [t, buffer] : outputs_)
    for (const auto& w : written)
      if (w.written && w.name == lowered()[t].name)
        std::memcpy(buffer.data(), from.outputs_.at(t).data(), buffer.size());
}

Status GraphCase::execute(const Executable& executable) {
  const Device device = executable.device();
  clear_outputs();
  constexpr auto guard = static_cast<std::int64_t>(GuardedBuffer::kGuard);
  struct Bound {
    GuardedBuffer* host;
    Memory memory;
    std::int64_t front, bytes;  // in front of the tensor, and with both guards
  };
  std::vector<Bound> bound;
  std::vector<Binding> bindings;
  for (auto* side : {&inputs_, &outputs_})
    for (auto& [t, buffer] : *side) {
      const auto front = guard + static_cast<std::int64_t>(buffer.beyond_aligned()),
                 bytes = front + static_cast<std::int64_t>(buffer.size()) + guard;
      const bool by_value = lowered()[t].bound_value;
      auto memory = Memory::allocate(by_value ? Device::cpu() : device, bytes);
      SINTER_TRY(memory);
      Status copied = memory->copy_in(buffer.data() - front, bytes);
      SINTER_TRY(copied);
      Binding binding(lowered()[t].name, static_cast<std::byte*>(memory->data()) + front);
      if (by_value) {
        PlanTensor tensor;
        tensor.type = lowered().type(t);
        tensor.by_value = true;
        binding = {lowered()[t].name, 0};
        binding.number = binding_of(tensor, buffer.data()).number;
      }
      bindings.push_back(binding);
      bound.push_back({&buffer, std::move(*memory), front, bytes});
    }
  // In place, where the graph allows it: the input's numbers where the output is to be.
  for (const PlanTensor& t : executable.plan().data().tensors) {
    if (t.alias < 0) continue;
    const auto& input = executable.plan().data().tensors[static_cast<std::size_t>(t.alias)];
    const auto of = [&](const std::string& name) {
      const auto same = [&](const Binding& b) { return b.tensor.name() == name; };
      return std::find_if(bindings.begin(), bindings.end(), same) - bindings.begin();
    };
    const auto in = static_cast<std::size_t>(of(input.name)),
               out = static_cast<std::size_t>(of(t.name));
    Status copied =
        bound[out].memory.copy_in(bound[in].host->data() - bound[in].front, bound[in].bytes);
    SINTER_TRY(copied);
    bindings[in].pointer = bindings[out].pointer;
  }
  auto workspace =
      Memory::allocate(device, std::max<std::int64_t>(executable.workspace_bytes(), 1));
  SINTER_TRY(workspace);
  // Nothing may rely on what the workspace held: NaN in every type.
  std::vector<std::byte> noise(static_cast<std::size_t>(workspace->bytes()), std::byte{0xff});
  Status noisy = workspace->copy_in(noise.data(), workspace->bytes());
  SINTER_TRY(noisy);
  Status ran =
      executable.execute(nullptr, bindings, {workspace->data(), executable.workspace_bytes()});
  SINTER_TRY(ran);
  Status finished = synchronize(device);
  SINTER_TRY(finished);
  for (auto& b : bound) {
    Status copied = b.memory.copy_out(b.host->data() - b.front, b.bytes);
    SINTER_TRY(copied);
  }
  return Done{};
}

Comparison GraphCase::judge(std::int64_t samples) const {
  const auto same = [](const auto& kept, const auto& now) {
    return std::equal(kept.second.begin(), kept.second.end(), now.second.data());
  };
  if (!asked_ || asked_->samples != samples ||
      !std::equal(asked_->inputs.begin(), asked_->inputs.end(), inputs_.begin(), same)) {
    std::vector<TensorId> tensors;
    for (const auto& [t, buffer] : outputs_) tensors.push_back(t);
    auto expected = sinter::expected(lowered(), inputs(), tensors, samples);
    if (!expected) throw std::runtime_error(expected.error().message());
    asked_.emplace(samples, std::map<TensorId, std::vector<std::byte>>(), std::move(*expected));
    for (const auto& [t, buffer] : inputs_)
      asked_->inputs[t].assign(buffer.data(), buffer.data() + buffer.size());
  }
  std::vector<const void*> written;
  for (const auto& [t, buffer] : outputs_) written.push_back(buffer.data());
  Comparison total;
  for (const auto& c : compare(lowered(), asked_->expected, written)) total.merge(c);
  return total;
}

// A written byte between the elements of a strided output.
std::string GraphCase::gap_write(TensorId tensor, const GuardedBuffer& buffer) const {
  const auto size = static_cast<std::size_t>(info(lowered().type(tensor)).bytes);
  std::vector<bool> element(buffer.size() / size);
  for_each_offset(lowered()[tensor].dim, lowered().stride(tensor),
                  [&](std::int64_t offset) { element[static_cast<std::size_t>(offset)] = true; });
  for (std::size_t i = 0; i < buffer.size(); ++i)
    if (!element[i / size] && buffer.data()[i] != GuardedBuffer::kPattern)
      return "output '" + lowered()[tensor].name + "' has byte " + std::to_string(i) +
             " written, which is in a gap";
  return {};
}

std::string GraphCase::stray_write() const {
  for (const auto& [t, buffer] : inputs_) {
    if (!buffer.guards_intact()) return "the guards of input '" + lowered()[t].name + "'";
    if (!std::equal(originals_.at(t).begin(), originals_.at(t).end(), buffer.data()))
      return "input '" + lowered()[t].name + "' changed";
  }
  for (const auto& [t, buffer] : outputs_) {
    if (!buffer.guards_intact()) return "the guards of output '" + lowered()[t].name + "'";
    if (auto gap = gap_write(t, buffer); !gap.empty()) return gap;
  }
  return {};
}

}  // namespace sinter::test
