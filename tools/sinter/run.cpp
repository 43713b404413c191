// sinter run: execute a graph or a plan on .npy files or random inputs, and judge the result.
#include <fmt/format.h>

#include <cmath>
#include <cstdlib>
#include <limits>
#include <map>

#include "array/npy.hpp"
#include "commands.hpp"
#include "console.hpp"
#include "documents.hpp"
#include "reference/element.hpp"
#include "runtime/bindings.hpp"
#include "tensors.hpp"

namespace sinter::cli {
namespace {

struct RunArguments {
  std::string document, device;
  std::vector<std::string> inputs, outputs;  // NAME=FILE
  std::uint64_t seed = 0;
  bool check = false, no_fuse = false, deterministic = false;
  std::int64_t samples = -1;
};

using Files = std::map<std::size_t, std::string>;  // by position of the tensor

// NAME=FILE splits at the last '=', because names may hold one.
Result<Files> files_of(const std::vector<std::string>& arguments,
                       const std::vector<PlanTensor>& tensors, bool written) {
  const std::string option = written ? "--output" : "--input";
  Files files;
  for (const auto& a : arguments) {
    const auto at = a.rfind('=');
    Diagnostic d;
    d.rule = Rule::binding_unknown;
    d.attribute = option + " '" + detail::shortened(a, 160) + "'";
    if (at == std::string::npos || at + 1 == a.size()) {
      d.allowed = "NAME=FILE or NAME=NUMBER";
      return d;
    }
    const std::string name = a.substr(0, at);
    std::size_t found = tensors.size();
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      if (tensors[i].written != written) continue;
      if (tensors[i].name == name) found = i;
      d.allowed += (d.allowed.empty() ? "" : ", ") + tensors[i].name;
    }
    d.tensor = name;
    if (found == tensors.size()) return d;
    if (files.emplace(found, a.substr(at + 1)).second) continue;
    d.rule = Rule::binding_repeated;
    d.allowed = {};
    return d;
  }
  return files;
}

// What CLI11 wraps around or cuts to 64 bits is no number that anybody asked for.
std::string seed_problem(const std::string& text) {
  const bool digits = text.find_first_not_of("0123456789") == std::string::npos;
  if (digits && !text.empty() && text.size() < 20) return {};
  return fmt::format("'{}' is no seed; give a whole number from 0 to 10^19 - 1",
                     detail::shortened(text, 40));
}

std::string packed_bytes(const PlanTensor& t, const void* strided) {
  const int bytes = info(t.type).bytes;
  std::string packed(static_cast<std::size_t>(count(t.dim)) * static_cast<std::size_t>(bytes),
                     '\0');
  gather(strided, bytes, t.dim, t.stride, packed.data());
  return packed;
}

// Elements that a broadcast view keeps in one place have to be equal in the array.
Status check_shared(const PlanTensor& t, const std::string& path, const std::string& packed,
                    const void* strided) {
  bool shared = span_elements(t.dim, t.stride) < count(t.dim);
  for (int i = 0; i < t.dim.size(); ++i) shared |= t.stride[i] == 0 && t.dim[i] > 1;
  if (!shared || packed_bytes(t, strided) == packed) return Done{};
  Diagnostic d;
  d.rule = Rule::array_format;
  d.tensor = t.name;
  d.attribute = "file '" + path + "'";
  d.seen = "different values for elements that share memory";
  d.allowed = "equal ones, by its strides " + to_string(t.stride);
  return d;
}

// Of an input that is passed by value: --input lr=0.01.
Status read_number(const PlanTensor& t, const std::string& text, void* element) {
  Number number;
  char* end = nullptr;
  number.value = std::strtod(text.c_str(), &end);
  if (end == text.c_str() || *end != 0)
    return Diagnostic{.rule = Rule::binding_number,
                      .tensor = t.name,
                      .seen = "'" + detail::shortened(text, 160) + "'",
                      .allowed = t.name + "=NUMBER"};
  number.integer = std::strtoll(text.c_str(), &end, 10);
  number.is_integer = *end == 0;
  store_number(t.type, number, element);
  return Done{};
}

Status read_inputs(const Files& files, const std::vector<PlanTensor>& tensors, TensorSet& host) {
  for (const auto& [i, path] : files) {
    const auto& t = tensors[i];
    if (t.by_value) {
      auto number = read_number(t, path, host.pointer(i));
      SINTER_TRY(number);
      continue;
    }
    const auto packed = read_npy(path, t.type, t.dim, t.name);
    SINTER_TRY(packed);
    scatter(packed->data(), info(t.type).bytes, t.dim, t.stride, host.pointer(i));
    auto shared = check_shared(t, path, *packed, host.pointer(i));
    SINTER_TRY(shared);
  }
  return Done{};
}

void print_summary(const PlanTensor& t, const std::string& packed) {
  const std::int64_t n = count(t.dim);
  double low = std::numeric_limits<double>::infinity(), high = -low, sum = 0;
  std::int64_t nans = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const double v = load_element(t.type, packed.data(), i);
    if (std::isnan(v)) {
      ++nans;
      continue;
    }
    low = std::fmin(low, v);
    high = std::fmax(high, v);
    sum += v;
  }
  std::string line =
      fmt::format("{}: {} {}", printable_name(t.name), name(t.type), to_string(t.dim));
  if (n > nans)
    line += fmt::format(", min {:.6g}, max {:.6g}, mean {:.6g}", low, high,
                        sum / static_cast<double>(n - nans));
  if (nans > 0) line += fmt::format(", {} NaN", nans);
  fmt::print("{}\n", line);
}

// Returns whether all is right.
bool print_check(const std::vector<Checked>& results) {
  bool ok = true, all_judged = true;
  for (const auto& [name, c, elements] : results) {
    ok &= c.ok();
    all_judged &= c.untrusted == 0;
    fmt::print(
        "check {}: {}, {} of {} elements compared, {} wrong, {} not judged, max relative error "
        "{:.3g}, worst error / bound {:.3g}\n",
        printable_name(name), c.ok() ? "ok" : "WRONG", c.compared, elements, c.wrong, c.untrusted,
        c.max_rel_error, c.worst_ratio);
    if (!c.ok())
      print_error(fmt::format("output '{}' is wrong: {}", detail::shortened(name, 160),
                              c.wrong > 0 ? c.first_wrong : "it differs by a constant factor"));
  }
  if (!all_judged)
    note(
        "note: not judged are elements whose error bound is too wide to say anything: rounding of "
        "these inputs alone may change them as much (softmax of large scores, cancellation)");
  return ok;
}

Result<int> check(const RunArguments& o, const Graph& graph, const PlanData& plan,
                  const TensorSet& host) {
  CheckEffort effort{.samples = o.samples};
  if (o.samples < 0) effort = check_effort(graph, plan);
  if (!effort.bearable) {
    print_error(fmt::format(
        "not checked: {} elements of each output take the float64 reference about {:.0f} hours of "
        "one core, because they depend on so much; --samples {} checks them all the same",
        effort.samples, effort.steps / 3.6e12, effort.samples));
    return kMissing;
  }
  const Progress progress("checking against the float64 reference");
  const auto checked = check_outputs(graph, plan.tensors, host, effort.samples);
  SINTER_TRY(checked);
  return print_check(*checked) ? kOk : kWrong;
}

Result<int> run(const RunArguments& o) {
  auto document = read_document(o.document);
  SINTER_TRY(document);
  if (const std::string problem = planning_problem(*document, {o.no_fuse, o.deterministic});
      !problem.empty()) {
    print_error(problem);
    return kBadInput;
  }
  auto device = device_from(o.device);
  SINTER_TRY(device);
  if (!document->plan) {
    auto target = device->target();
    SINTER_TRY(target);
    const Progress progress("planning");
    auto plan = Plan::make(*document->graph, progress.following({.fuse = !o.no_fuse,
                                                                 .deterministic = o.deterministic,
                                                                 .architecture = *target}));
    SINTER_TRY(plan);
    document->plan = std::move(*plan);
  }
  const PlanData& plan = document->plan->data();
  const auto in = files_of(o.inputs, plan.tensors, false);
  SINTER_TRY(in);
  const auto out = files_of(o.outputs, plan.tensors, true);
  SINTER_TRY(out);

  auto room = check_room(plan.tensors, device->is_cpu() ? 0 : plan.workspace_bytes, *device);
  SINTER_TRY(room);
  auto host = TensorSet::allocate(plan.tensors, Device::cpu());
  SINTER_TRY(host);
  {
    const Progress progress("preparing the inputs");
    auto filled = fill_set(*document->graph, plan.tensors, o.seed, *host);
    SINTER_TRY(filled);
    auto read = read_inputs(*in, plan.tensors, *host);
    SINTER_TRY(read);
    host->spoil_outputs();
  }
  {
    const Progress progress("compiling and running on " + device_name(*device));
    auto executable = load(*document->plan, *device);
    SINTER_TRY(executable);
    auto memory = TensorSet::allocate(plan.tensors, *device);
    SINTER_TRY(memory);
    auto copied = memory->copy_from(*host);
    SINTER_TRY(copied);
    auto workspace = Memory::allocate(*device, executable->workspace_bytes());
    SINTER_TRY(workspace);
    auto executed = executable->execute(nullptr, memory->bindings(), *workspace);
    SINTER_TRY(executed);
    auto finished = synchronize(*device);
    SINTER_TRY(finished);
    auto back = memory->copy_outputs_to(*host);
    SINTER_TRY(back);
  }
  for (std::size_t i = 0; i < plan.tensors.size(); ++i) {
    const auto& t = plan.tensors[i];
    if (!t.written) continue;
    const std::string packed = packed_bytes(t, host->pointer(i));
    print_summary(t, packed);
    if (const auto file = out->find(i); file != out->end()) {
      auto written = write_npy(file->second, t.type, t.dim, packed);
      SINTER_TRY(written);
    }
  }
  if (o.check && device->is_cpu())
    note("note: the CPU backend is the reference; kernels were not run");
  return o.check ? check(o, *document->graph, plan, *host) : Result<int>(kOk);
}

}  // namespace

void add_run(CLI::App& app, int& exit_code) {
  auto o = std::make_shared<RunArguments>();
  CLI::App* command = app.add_subcommand("run", "Execute a graph or a plan");
  command->add_option("document", o->document, "Graph or plan file")->required();
  command->add_option("--device", o->device, "cpu or the number of a GPU (default: the current)")
      ->check(device_problem);
  command
      ->add_option(
          "--input", o->inputs,
          "NAME=FILE.npy, or NAME=NUMBER of what is passed by value; the others are random")
      ->take_all()
      ->expected(1);
  command->add_option("--output", o->outputs, "NAME=FILE.npy to write an output to")
      ->take_all()
      ->expected(1);
  command->add_option("--seed", o->seed, "Seed of the random inputs")->check(seed_problem);
  command->add_flag("--check", o->check, "Compare every output with the float64 reference");
  command
      ->add_option("--samples", o->samples,
                   "Elements to check of each output, 0: all (default: as many as take seconds)")
      ->check(negative_problem);
  command->add_flag("--no-fuse", o->no_fuse, "One kernel a node");
  command->add_flag("--deterministic", o->deterministic, "The same bits in each run");
  command->callback([o, &exit_code] { exit_code = finish(run(*o)); });
}

}  // namespace sinter::cli
