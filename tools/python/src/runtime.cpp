// Plans, executables and memory. What takes time runs without the GIL.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include "graph.hpp"

namespace sinter::python {
namespace {

template <class F>
auto without_gil(F&& f) {
  auto result = [&] {
    nb::gil_scoped_release release;
    return f();
  }();
  return take(std::move(result));
}

// Hands progress to a Python function. What that raises first is raised behind the call.
class Progress {
 public:
  explicit Progress(nb::object function) : function_(std::move(function)) {}

  PlanOptions followed_by(PlanOptions options) {
    if (function_.is_none()) return options;
    options.progress_context = this;
    options.progress = [](void* self, const PlanProgress& at) {
      const nb::gil_scoped_acquire gil;
      static_cast<Progress*>(self)->say(at);
    };
    return options;
  }
  void raise() {
    if (raised_) throw std::move(*raised_);
  }

 private:
  void say(const PlanProgress& at) {
    if (raised_) return;
    try {
      const bool planning = at.stage == PlanProgress::Stage::planning;
      function_(planning ? "planning" : "compiling", at.done, at.total);
    } catch (nb::python_error& error) {
      raised_.emplace(std::move(error));
    }
  }

  nb::object function_;
  std::optional<nb::python_error> raised_;
};

nb::object device_name(Device d) { return d.is_cpu() ? nb::cast("cpu") : nb::cast(d.ordinal()); }

nb::list tensors(const Plan& plan) {
  nb::list rows;
  for (const auto& t : plan.tensors())
    rows.append(nb::make_tuple(t.name, name(t.type), tuple_of(t.dim), tuple_of(t.stride), t.bytes,
                               t.written, t.by_value, t.read, t.alias, t.uid));
  return rows;
}

TensorKey key_from(nb::handle key) {
  if (PyLong_Check(key.ptr())) return Uid{nb::cast<std::int64_t>(key)};
  Py_ssize_t size = 0;
  const char* name =
      PyUnicode_Check(key.ptr()) ? PyUnicode_AsUTF8AndSize(key.ptr(), &size) : nullptr;
  if (!name && !PyErr_Occurred())
    throw nb::type_error("a tensor is given by its name or, as an integer, by its uid");
  if (!name) throw nb::python_error();
  return std::string_view(name, static_cast<std::size_t>(size));
}

// An address or, of what is passed by value, a number in a list, by name or by uid. The names stay
// in the keys of the dict.
std::vector<Binding> bindings_from(const nb::dict& pointers) {
  std::vector<Binding> bindings;
  for (const auto& [key, v] : pointers) {
    const TensorKey tensor = key_from(key);
    if (!nb::isinstance<nb::list>(v)) {
      bindings.emplace_back(tensor, reinterpret_cast<void*>(nb::cast<std::uintptr_t>(v)));
      continue;
    }
    const nb::object number = nb::borrow<nb::list>(v)[0];
    if (PyLong_Check(number.ptr()))
      bindings.emplace_back(tensor, nb::cast<std::int64_t>(number));
    else
      bindings.emplace_back(tensor, nb::cast<double>(number));
  }
  return bindings;
}

void execute(const Executable& self, std::uintptr_t stream, const nb::dict& pointers,
             std::uintptr_t workspace, std::int64_t workspace_bytes) {
  const std::vector<Binding> bindings = bindings_from(pointers);
  without_gil([&] {
    return self.execute(reinterpret_cast<Stream>(stream), bindings,
                        Workspace{reinterpret_cast<void*>(workspace), workspace_bytes});
  });
}

// Looked up and checked once. Pointers by name, or in a list by position in the plan's tensors.
BoundExecutable bound(const Executable& self, nb::handle pointers, std::uintptr_t workspace,
                      std::int64_t workspace_bytes) {
  std::vector<Binding> bindings;
  if (nb::isinstance<nb::dict>(pointers)) {
    bindings = bindings_from(nb::borrow<nb::dict>(pointers));
  } else {
    std::int64_t place = 0;
    for (const std::uintptr_t p : nb::cast<std::vector<std::uintptr_t>>(pointers))
      bindings.emplace_back(Index{place++}, reinterpret_cast<void*>(p));
  }
  return take(self.bind(bindings, Workspace{reinterpret_cast<void*>(workspace), workspace_bytes}));
}

void bind_memory(nb::module_& m) {
  nb::class_<Memory>(m, "Memory", "Memory on a device.")
      .def_static("allocate",
                  [](nb::handle device, std::int64_t bytes) {
                    return take(Memory::allocate(device_from(device), bytes));
                  })
      .def_prop_ro("pointer",
                   [](const Memory& self) { return reinterpret_cast<std::uintptr_t>(self.data()); })
      .def_prop_ro("bytes", &Memory::bytes)
      .def("copy_out", [](const Memory& self) {
        auto bytes = nb::steal<nb::bytes>(PyBytes_FromStringAndSize(nullptr, self.bytes()));
        if (!bytes.is_valid()) throw nb::python_error();
        take(self.copy_out(PyBytes_AS_STRING(bytes.ptr()), self.bytes()));
        return bytes;
      });
  m.def(
      "synchronize",
      [](nb::handle device) {
        const Device d = device_from(device);
        without_gil([&] { return synchronize(d); });
      },
      nb::arg("device") = nb::none(), "Waits for all work of the device.");
}

}  // namespace

Device device_from(nb::handle v) {
  if (v.is_none()) return Device::current();
  int ordinal = 0;
  if (PyUnicode_Check(v.ptr()) && nb::cast<std::string>(v) == "cpu") return Device::cpu();
  if (!PyBool_Check(v.ptr()) && nb::try_cast(v, ordinal) && ordinal >= 0)
    return Device::gpu(ordinal);
  raise({Diagnostic{.rule = Rule::device_missing,
                    .attribute = "device",
                    .seen = nb::cast<std::string>(nb::repr(v)),
                    .allowed = "'cpu', the ordinal of a GPU, or None"}});
}

void bind_runtime(nb::module_& m) {
  nb::class_<Plan>(m, "Plan", "The kernels of a graph as data. Making one needs no GPU.")
      .def_static(
          "make",
          [](const GraphObject& graph, bool fuse, bool deterministic,
             std::vector<std::string> targets, std::string architecture, std::string tuning_file,
             nb::object progress) {
            Progress followed(std::move(progress));
            Plan plan = without_gil([&] {
              const std::lock_guard lock(*graph.mutex);
              return Plan::make(*graph.graph, followed.followed_by({.fuse = fuse,
                                                                    .deterministic = deterministic,
                                                                    .targets = targets,
                                                                    .architecture = architecture,
                                                                    .tuning_file = tuning_file}));
            });
            followed.raise();
            return plan;
          },
          nb::arg("graph"), nb::kw_only(), nb::arg("fuse") = true, nb::arg("deterministic") = false,
          nb::arg("targets") = std::vector<std::string>{}, nb::arg("architecture") = "",
          nb::arg("tuning_file") = "", nb::arg("progress") = nb::none())
      .def_static(
          "from_json",
          [](std::string_view text, std::string_view file) {
            return without_gil([&] { return Plan::from_json(text, file); });
          },
          nb::arg("text"), nb::arg("file") = "")
      .def("to_json", &Plan::to_json, "Canonical text: it reads back to the same bytes.")
      .def(
          "with_targets",
          [](const Plan& self, const std::vector<std::string>& targets) {
            return without_gil([&] { return self.with_targets(targets); });
          },
          nb::arg("targets"), "The plan with machine code for these, such as sm_90a.")
      .def_prop_ro("name", &Plan::name)
      .def_prop_ro("kernels", &Plan::kernels)
      .def_prop_ro("workspace_bytes", &Plan::workspace_bytes)
      .def("tensors", &tensors,
           "Rows (name, data type, dim, stride, bytes, written, by value, read, alias, uid).");
  nb::class_<BoundExecutable>(m, "Bound", "A plan with its memory: a call only launches.")
      .def(
          "execute",
          [](const BoundExecutable& self, std::uintptr_t stream) {
            without_gil([&] { return self.execute(reinterpret_cast<Stream>(stream)); });
          },
          nb::arg("stream"))
      .def(
          "execute_with",
          [](const BoundExecutable& self, std::uintptr_t stream, const nb::dict& numbers) {
            const std::vector<Binding> bindings = bindings_from(numbers);
            without_gil([&] { return self.execute(reinterpret_cast<Stream>(stream), bindings); });
          },
          nb::arg("stream"), nb::arg("numbers"), "With other numbers, for this call.");
  nb::class_<Executable>(m, "Loaded", "A plan on a device; takes pointers.")
      .def("execute", &execute, nb::arg("stream"), nb::arg("pointers"), nb::arg("workspace") = 0,
           nb::arg("workspace_bytes") = 0)
      .def("bind", &bound, nb::arg("pointers"), nb::arg("workspace") = 0,
           nb::arg("workspace_bytes") = 0,
           nb::sig("def bind(self, pointers: dict | collections.abc.Sequence[int], "
                   "workspace: int = 0, workspace_bytes: int = 0) -> Bound"),
           "With pointers by name, or one for each of plan.tensors().")
      .def_prop_ro("plan", &Executable::plan)
      .def_prop_ro("workspace_bytes", &Executable::workspace_bytes)
      .def_prop_ro("device", [](const Executable& self) { return device_name(self.device()); });
  m.def(
      "load",
      [](const Plan& plan, nb::handle device) {
        const Device d = device_from(device);
        return without_gil([&] { return load(plan, d); });
      },
      nb::arg("plan"), nb::arg("device") = nb::none());
  m.def(
      "compile",
      [](const GraphObject& graph, nb::handle device, bool fuse, bool deterministic,
         std::string architecture, std::string tuning_file, nb::object progress) {
        const Device d = device_from(device);
        Progress followed(std::move(progress));
        Executable made = without_gil([&] {
          const std::lock_guard lock(*graph.mutex);
          return compile(*graph.graph, d,
                         followed.followed_by({.fuse = fuse,
                                               .deterministic = deterministic,
                                               .architecture = architecture,
                                               .tuning_file = tuning_file}));
        });
        followed.raise();
        return made;
      },
      nb::arg("graph"), nb::arg("device") = nb::none(), nb::kw_only(), nb::arg("fuse") = true,
      nb::arg("deterministic") = false, nb::arg("architecture") = "", nb::arg("tuning_file") = "",
      nb::arg("progress") = nb::none());
  m.def(
      "prepare",
      [](const GraphObject& graph, nb::handle device, bool fuse, bool deterministic,
         std::vector<std::string> targets, std::string architecture, std::string tuning_file) {
        if (architecture.empty()) architecture = take(device_from(device).target());
        Prepared parts = without_gil([&] {
          const std::lock_guard lock(*graph.mutex);
          return prepare(*graph.graph, PlanOptions{.fuse = fuse,
                                                   .deterministic = deterministic,
                                                   .targets = targets,
                                                   .architecture = architecture,
                                                   .tuning_file = tuning_file});
        });
        return std::pair(std::move(parts.constants), std::move(parts.rest));
      },
      nb::arg("graph"), nb::arg("device") = nb::none(), nb::kw_only(), nb::arg("fuse") = true,
      nb::arg("deterministic") = false, nb::arg("targets") = std::vector<std::string>{},
      nb::arg("architecture") = "", nb::arg("tuning_file") = "",
      "Plans of what follows from constants, if anything does, and of the rest.");
  m.def(
      "current_device", [] { return device_name(Device::current()); },
      "'cpu', or the ordinal of the GPU that compile() takes.");
  bind_memory(m);
}

}  // namespace sinter::python
