#include "graph.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

namespace sinter::python {
namespace {

using Name = std::optional<std::string>;

// Raises what a call has added to the graph's diagnostics.
void raise_new(const Graph& graph, std::size_t before) {
  const auto& all = graph.diagnostics();
  if (all.size() > before)
    raise(Diagnostics(all.begin() + static_cast<std::ptrdiff_t>(before), all.end()));
}

TensorOptions options_from(std::string name, nb::handle dim, nb::handle stride, nb::handle type,
                           std::optional<std::int64_t> uid, std::int64_t alignment) {
  return {.name = std::move(name),
          .dim = dims_from(dim, "dim"),
          .stride = dims_from(stride, "stride"),
          .data_type = data_type_from(type, "data_type"),
          .uid = uid,
          .alignment = alignment};
}

// An input port: a tensor, a number that becomes an f32 scalar, or None.
TensorId input_from(const GraphObject& self, nb::handle v, const std::string& port,
                    const std::string& node) {
  if (v.is_none()) return kNoTensor;
  if (nb::isinstance<TensorObject>(v)) {
    const auto& t = *nb::inst_ptr<TensorObject>(v);
    return t.owner.graph.get() == self.graph.get() ? t.id : -3;  // -3: refused as foreign
  }
  double number = 0;
  if (!PyBool_Check(v.ptr()) && nb::try_cast(v, number))
    return self.graph->scalar(number, DataType::f32, {}, caller()).id();
  raise({Diagnostic{.rule = Rule::attribute_value,
                    .node = node,
                    .attribute = "port " + port,
                    .seen = nb::cast<std::string>(nb::repr(v)),
                    .allowed = "a tensor or a number"}});
}

// An output port: None or False leaves it out, True asks for it, dims and a dict of fields declare.
TensorId output_from(const GraphObject& self, nb::handle v, const std::string& port,
                     const std::string& node) {
  if (v.is_none() || v.is(nb::handle(Py_False))) return kNoTensor;
  if (v.is(nb::handle(Py_True))) return kNewTensor;
  TensorDesc t;
  t.where = caller();
  if (!nb::isinstance<nb::dict>(v)) {
    t.dim = dims_from(v, "port " + port);
  } else {
    for (const auto& [key, field] : nb::borrow<nb::dict>(v)) {
      const auto name = nb::cast<std::string>(key);
      if (name == "dim")
        t.dim = dims_from(field, name);
      else if (name == "stride")
        t.stride = dims_from(field, name);
      else if (name == "data_type")
        t.data_type = data_type_from(field, name);
      else if (name == "name")
        t.name = nb::cast<std::string>(field);
      else
        raise({Diagnostic{.rule = Rule::attribute_unknown,
                          .node = node,
                          .attribute = "port " + port + ", " + name,
                          .allowed = "dim, stride, data_type, name"}});
    }
  }
  t.dim_known = !t.dim.empty();
  return detail::GraphEditor(*self.graph).declare(std::move(t));
}

nb::list add(const GraphObject& self, std::string_view op_name, const nb::dict& inputs,
             const nb::dict& outputs, const nb::dict& attributes, std::string name,
             nb::handle compute) {
  const auto op = op_from_name(op_name);
  if (!op)
    raise({Diagnostic{.rule = Rule::json_field, .attribute = "op", .seen = std::string(op_name)}});
  const GraphLock lock(self);
  auto& graph = *self.graph;
  const std::string label =
      name.empty() ? detail::text({op_name, " #", graph.nodes().size()}) : name;
  Attributes values = attributes_from(*op, attributes, label);
  const auto by_port = [&](const nb::dict& given, auto index, auto read, std::size_t count) {
    std::vector<TensorId> ids(count, kNoTensor);
    for (const auto& [key, v] : given) {
      const auto port = nb::cast<std::string>(key);
      const int i = index(*op, port);
      if (i < 0) raise({Diagnostic{.rule = Rule::port_unknown, .node = label, .attribute = port}});
      if (static_cast<std::size_t>(i) >= ids.size())
        ids.resize(static_cast<std::size_t>(i) + 1, kNoTensor);
      ids[static_cast<std::size_t>(i)] = read(self, v, port, label);
    }
    return ids;
  };
  auto in =
      by_port(inputs, input_index, input_from, info(*op).variadic ? 0 : info(*op).inputs.size());
  auto out = by_port(outputs, output_index, output_from, info(*op).outputs.size());
  const std::size_t before = graph.diagnostics().size();
  const auto ids = detail::GraphEditor(graph).add(
      *op, std::move(values), std::move(in), std::move(out),
      {std::move(name), data_type_from(compute, "compute_data_type")}, caller());
  raise_new(graph, before);
  nb::list tensors;
  for (auto id : ids) tensors.append(id < 0 ? nb::none() : nb::cast(TensorObject{self, id}));
  return tensors;
}

void bind_tensor(nb::module_& m) {
  const auto desc = [](const TensorObject& t) {
    const GraphLock lock(t.owner);
    return (*t.owner.graph)[t.id];
  };
  nb::class_<TensorObject>(m, "Tensor", "A tensor of a graph, which it keeps alive.")
      .def_prop_ro("graph", [](const TensorObject& t) { return t.owner; })
      .def_prop_ro(
          "name", [desc](const TensorObject& t) { return desc(t).name; },
          "Empty until the graph is compiled, where none was given.")
      .def_prop_ro(
          "dim", [desc](const TensorObject& t) { return tuple_of(desc(t).dim); },
          nb::sig("def dim(self) -> tuple[int, ...]"))
      .def_prop_ro(
          "stride",
          [](const TensorObject& t) {
            const GraphLock lock(t.owner);
            return tuple_of(t.owner.graph->stride(t.id));
          },
          nb::sig("def stride(self) -> tuple[int, ...]"), "In elements.")
      .def_prop_ro("data_type",
                   [](const TensorObject& t) {
                     const GraphLock lock(t.owner);
                     return name(t.owner.graph->type(t.id));
                   })
      .def(
          "named",
          [](const TensorObject& t, std::string name) {
            const GraphLock lock(t.owner);
            Tensor(t.owner.graph.get(), t.id).named(std::move(name));
            return t;
          },
          nb::arg("name"),
          "Names the tensor and, where that has no name yet, the operation that makes it.")
      .def(
          "type",
          [](const TensorObject& t, nb::handle type) {
            const auto data_type = data_type_from(type, "data_type");
            const GraphLock lock(t.owner);
            const auto before = t.owner.graph->diagnostics().size();
            Tensor(t.owner.graph.get(), t.id).type(data_type, caller());
            raise_new(*t.owner.graph, before);
            return t;
          },
          nb::arg("data_type"), nb::sig("def type(self, data_type: str) -> Tensor"),
          "States the data type that the tensor is stored in.")
      .def("__repr__", [](const TensorObject& t) {
        const GraphLock lock(t.owner);
        const auto& g = *t.owner.graph;
        return detail::text({"<sinter.Tensor ", g.label(t.id), " ", name(g.type(t.id)), " ",
                             to_string(g[t.id].dim), ">"});
      });
}

}  // namespace

nb::tuple tuple_of(const Dims& dims) {
  nb::list list;
  for (auto d : dims) list.append(d);
  return nb::tuple(list);
}

void bind_graph(nb::module_& m) {
  nb::class_<GraphObject> graph(m, "Graph",
                                "A graph of operations. A mistake raises sinter.Error and stays in "
                                "the graph: one that has raised does not compile.");
  bind_tensor(m);
  graph
      .def(
          "__init__",
          [](GraphObject* self, std::string name, nb::handle io, nb::handle intermediate,
             nb::handle compute) {
            new (self) GraphObject{Shared<Graph>::make(
                GraphOptions{std::move(name), data_type_from(io, "io_data_type"),
                             data_type_from(intermediate, "intermediate_data_type"),
                             data_type_from(compute, "compute_data_type")})};
          },
          nb::arg("name") = "graph", nb::kw_only(), nb::arg("io_data_type") = "f32",
          nb::arg("intermediate_data_type") = "f32", nb::arg("compute_data_type") = "f32",
          nb::sig("def __init__(self, name: str = 'graph', *, io_data_type: str = 'f32', "
                  "intermediate_data_type: str = 'f32', compute_data_type: str = 'f32') -> None"))
      .def(
          "tensor",
          [](const GraphObject& self, Name name, nb::handle dim, nb::handle stride, nb::handle type,
             std::optional<std::int64_t> uid, std::int64_t alignment, bool constant) {
            auto options = options_from(name.value_or(""), dim, stride, type, uid, alignment);
            options.constant = constant;
            const GraphLock lock(self);
            const auto before = self.graph->diagnostics().size();
            const Tensor t = self.graph->tensor(std::move(options), caller());
            raise_new(*self.graph, before);
            return TensorObject{self, t.id()};
          },
          nb::arg("name") = nb::none(), nb::arg("dim") = nb::none(), nb::kw_only(),
          nb::arg("stride") = nb::none(), nb::arg("data_type") = nb::none(),
          nb::arg("uid") = nb::none(), nb::arg("alignment") = 16, nb::arg("constant") = false,
          nb::sig(
              "def tensor(self, name: str | None = None, dim: collections.abc.Sequence[int] | None "
              "= None, *, "
              "stride: collections.abc.Sequence[int] | None = None, data_type: str | None = None, "
              "uid: int | None = None, alignment: int = 16, constant: bool = False) -> Tensor"),
          "An input of the graph. Strides are in elements, packed row-major when absent.")
      .def(
          "scalar",
          [](const GraphObject& self, nb::handle value, nb::handle type, std::string name,
             int rank) {
            const auto data_type = data_type_from(type, "data_type");
            const GraphLock lock(self);
            const Tensor t =
                is_floating(data_type)
                    ? self.graph->scalar(nb::cast<double>(value), data_type, name, caller())
                    : self.graph->scalar_integer(nb::cast<std::int64_t>(value), data_type, name,
                                                 caller());
            return TensorObject{self, t.of_rank(rank, caller()).id()};
          },
          nb::arg("value"), nb::arg("data_type") = "f32", nb::arg("name") = "", nb::arg("rank") = 1,
          nb::sig("def scalar(self, value: float | int, data_type: str = 'f32', "
                  "name: str = '', rank: int = 1) -> Tensor"),
          "A pass-by-value scalar; its dims, `rank` of them, are 1.")
      .def(
          "scalar_input",
          [](const GraphObject& self, std::string name, nb::handle type, int rank) {
            const auto data_type = data_type_from(type, "data_type");
            const GraphLock lock(self);
            const Tensor t = self.graph->scalar_input(std::move(name), data_type, caller());
            return TensorObject{self, t.of_rank(rank, caller()).id()};
          },
          nb::arg("name"), nb::arg("data_type") = "f32", nb::arg("rank") = 1,
          nb::sig("def scalar_input(self, name: str, data_type: str = 'f32', rank: int = 1) "
                  "-> Tensor"),
          "An input of one element whose number is given at each call, run(lr=0.01); its dims, "
          "`rank` of them, are 1.")
      .def(
          "output",
          [](const GraphObject& self, const std::optional<TensorObject>& given, std::string name,
             nb::handle stride, nb::handle type, std::optional<std::int64_t> uid,
             std::int64_t alignment, std::optional<TensorObject> alias) {
            if (!given)
              raise({Diagnostic{.rule = Rule::tensor_absent,
                                .tensor = std::move(name),
                                .fix = "ask for the port where its node is made, as Stats=True"}});
            const TensorObject& t = *given;
            auto options = options_from({}, nb::none(), stride, type, uid, alignment);
            if (alias) options.alias = Tensor(alias->owner.graph.get(), alias->id);
            const GraphLock lock(self);
            const auto before = self.graph->diagnostics().size();
            self.graph->output(Tensor(t.owner.graph.get(), t.id), std::move(name),
                               std::move(options), caller());
            raise_new(*self.graph, before);
            return t;
          },
          nb::arg("tensor").none(), nb::arg("name") = "", nb::kw_only(),
          nb::arg("stride") = nb::none(), nb::arg("data_type") = nb::none(),
          nb::arg("uid") = nb::none(), nb::arg("alignment") = 16, nb::arg("alias") = nb::none(),
          nb::sig(
              "def output(self, tensor: Tensor, name: str = '', *, "
              "stride: collections.abc.Sequence[int] | None = None, data_type: str | None = None, "
              "uid: int | None = None, alignment: int = 16, alias: Tensor | None = None) -> "
              "Tensor"),
          "Marks a result as seen by the caller, under this name. `alias`: an input in whose "
          "memory "
          "it may lie.")
      .def("add", &add, nb::arg("op"), nb::arg("inputs"), nb::arg("outputs"), nb::arg("attributes"),
           nb::arg("name") = "", nb::arg("compute_data_type") = nb::none(),
           "The general form that the builders of sinter.operations use: a node from ports and "
           "attributes by name. Gives one entry an output port, None where it is not connected.")
      .def(
          "notes",
          [](const GraphObject& self) {
            const GraphLock lock(self);
            nb::list notes;
            for (auto& d : self.graph->notes()) notes.append(nb::cast(std::move(d)));
            return notes;
          },
          nb::sig("def notes(self) -> list[Diagnostic]"),
          "What is legal and yet likely a mistake, such as inputs that no node reads.")
      .def(
          "to_json",
          [](const GraphObject& self) {
            const GraphLock lock(self);
            auto errors = self.graph->check();
            if (!errors.empty()) raise(std::move(errors));
            return graph_to_json(*self.graph);
          },
          "Canonical graph JSON.")
      .def_static(
          "from_json",
          [](std::string_view document, std::string_view file) {
            return GraphObject{take(graph_from_json(document, file))};
          },
          nb::arg("text"), nb::arg("file") = "");
}

}  // namespace sinter::python
