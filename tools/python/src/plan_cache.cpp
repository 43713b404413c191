// Plans by extents. The graph is described by a Python function, which any thread may call.
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <sinter/plan_cache.hpp>

#include "graph.hpp"

namespace sinter::python {
namespace {

constexpr const char* kBuilder = "the builder:";  // in the diagnostic of what Python raised there

// Nodes and tensors of a graph that a Python object owns, in the graph that a cache gives.
void copy(const Graph& from, Graph& to) {
  const detail::GraphEditor editor(to);
  std::vector<TensorId> ids;
  for (TensorDesc d : from.tensors()) {
    d.producer = -1;
    d.read = false;
    d.alias = kNoTensor;
    ids.push_back(editor.declare(std::move(d)));
  }
  const auto mapped = [&](std::vector<TensorId> ports) {
    for (TensorId& t : ports)
      if (t >= 0) t = ids[static_cast<std::size_t>(t)];
    return ports;
  };
  for (const Node& n : from.nodes())
    editor.add(n.op, n.attributes, mapped(n.inputs), mapped(n.outputs), {n.name, n.compute},
               n.where);
  for (std::size_t i = 0; i < ids.size(); ++i)
    if (const TensorId alias = from.tensors()[i].alias; alias >= 0)
      editor.edit(ids[i]).alias = ids[static_cast<std::size_t>(alias)];
}

// What a builder has raised, for the call that it concerns.
struct Raised {
  nb::object exception;
};

class Builder {
 public:
  Builder(nb::callable function, std::shared_ptr<Raised> raised)
      : function_(std::move(function)), raised_(std::move(raised)) {}
  Builder(Builder&&) = default;
  ~Builder() {
    nb::gil_scoped_acquire gil;
    function_.reset();
    raised_.reset();
  }

  void operator()(Graph& graph, GraphBuilder::Extents extents) const {
    nb::gil_scoped_acquire gil;
    const GraphObject described{Shared<Graph>::make(GraphOptions(graph.options()))};
    try {
      nb::list numbers;
      for (const std::int64_t e : extents) numbers.append(e);
      function_(described, *numbers);
      copy(*described.graph, graph);
    } catch (nb::python_error& error) {
      raised_->exception = nb::borrow(error.value());
      detail::GraphEditor(graph).report(
          {.rule = Rule::attribute_value, .attribute = kBuilder, .seen = error.what()});
    }
  }

 private:
  nb::callable function_;
  std::shared_ptr<Raised> raised_;
};

class CacheObject {
 public:
  CacheObject(nb::callable builder, PlanCacheOptions options)
      : raised_(std::make_shared<Raised>()),
        cache_(new PlanCache(Builder(std::move(builder), raised_), std::move(options))) {
    if (const auto checked = cache_->check(); !checked) raise(checked.errors());
  }
  ~CacheObject() {
    nb::gil_scoped_release release;  // what is being compiled may call the builder
    cache_.reset();
  }

  Executable get(const std::vector<std::int64_t>& extents) {
    auto found = [&] {
      nb::gil_scoped_release release;
      return cache_->get(extents);
    }();
    if (found) return std::move(found).value();
    if (found.error().attribute == kBuilder && raised_->exception.is_valid()) {
      PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(raised_->exception.ptr())),
                      raised_->exception.ptr());
      throw nb::python_error();
    }
    raise(found.errors());
  }
  void wait() {
    nb::gil_scoped_release release;
    cache_->wait();
  }
  PlanCache& cache() { return *cache_; }

 private:
  std::shared_ptr<Raised> raised_;
  std::unique_ptr<PlanCache> cache_;
};

using Extent = std::tuple<std::string, std::int64_t, std::int64_t, std::vector<std::int64_t>>;

}  // namespace

void bind_plan_cache(nb::module_& m) {
  nb::class_<CacheObject>(m, "Cache", "Loaded plans by extents.")
      .def(
          "__init__",
          [](CacheObject* self, nb::callable builder, nb::handle device, const GraphObject& like,
             std::size_t capacity, bool background, const std::vector<Extent>& extents, bool fuse,
             bool deterministic, std::string architecture, std::string tuning_file) {
            PlanCacheOptions options{.device = device_from(device),
                                     .plan = {.fuse = fuse,
                                              .deterministic = deterministic,
                                              .architecture = std::move(architecture),
                                              .tuning_file = std::move(tuning_file)},
                                     .graph = like.graph->options(),
                                     .capacity = capacity,
                                     .background = background};
            for (const auto& [name, least, most, bounds] : extents)
              options.extents.push_back({name, least, most, bounds});
            new (self) CacheObject(std::move(builder), std::move(options));
          },
          nb::arg("builder"), nb::arg("device").none(), nb::arg("like"), nb::kw_only(),
          nb::arg("capacity"), nb::arg("background"), nb::arg("extents"), nb::arg("fuse"),
          nb::arg("deterministic"), nb::arg("architecture"), nb::arg("tuning_file"),
          "`like`: an empty graph with the name and the types of those that are built.")
      .def("get", &CacheObject::get, nb::arg("extents"))
      .def("wait", &CacheObject::wait)
      .def(
          "counts",
          [](CacheObject& self) {
            const PlanCacheCounts c = self.cache().counts();
            return nb::make_tuple(c.hits, c.compiles, c.kernels, c.classes, c.plain, c.failed,
                                  c.evicted, c.held);
          },
          nb::sig("def counts(self) -> tuple[int, int, int, int, int, int, int, int]"),
          "(hits, compiles, kernels, classes, plain, failed, evicted, held)")
      .def(
          "failure", [](CacheObject& self) { return self.cache().failure(); },
          "Why the last compilation in the background that failed did.")
      .def("explain", [](CacheObject& self) { return self.cache().explain(); });
}

}  // namespace sinter::python
