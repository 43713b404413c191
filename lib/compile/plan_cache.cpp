// One entry a key. The first thread that asks for it compiles, the others wait on a condition; the
// lock is held for looking up only.
#include "sinter/plan_cache.hpp"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <thread>

#include "compile/extent_classes.hpp"
#include "plan/canonical_text.hpp"
#include "plan/plan_data.hpp"
#include "runtime/compiler.hpp"

namespace sinter {

struct PlanCache::Impl {
  struct Entry {
    std::optional<Executable> fast, plain;
    Diagnostics errors;   // where the first compilation failed
    bool pending = true;  // neither an executable nor an error yet
    std::uint64_t last_use = 0;
  };
  struct ClassPlan {
    Plan plan;
    std::vector<ClassSource> beside;  // what plans of other extents have in place of its kernels
  };
  struct Job {
    std::shared_ptr<Entry> entry;
    std::unique_ptr<Graph> graph;
    std::vector<std::int64_t> extents;
    std::optional<ClassPlan> plan;  // where one was made to see what it would compile
  };

  Impl(GraphBuilder b, PlanCacheOptions o) : builder(std::move(b)), options(std::move(o)) {}

  const GraphBuilder builder;
  const PlanCacheOptions options;
  mutable std::mutex mutex;
  std::condition_variable changed;  // an entry is no longer pending, a job has come or has ended
  std::map<std::vector<std::int64_t>, std::shared_ptr<Entry>> entries;
  std::uint64_t uses = 0;
  PlanCacheCounts counts;
  Diagnostics failure;
  std::optional<ExtentClasses> classes;
  std::set<std::string> kernels;  // entries of those that are compiled
  std::deque<Job> jobs;           // of the background
  bool working = false, ending = false;
  std::thread worker;

  bool in_background() const { return options.background && !options.device.is_cpu(); }
  Result<Executable> get(Extents extents);
  Result<Executable> make(const std::vector<std::int64_t>& key,
                          const std::shared_ptr<Entry>& entry);
  Result<ClassPlan> plan_class(Graph& graph, Extents extents);
  Result<Executable> compile_fast(Graph& graph, Extents extents, std::optional<ClassPlan> plan);
  void compile_class(const ClassPlan& plan);
  bool has_compiled(const Plan& plan);
  void publish(Entry& entry, bool fast, Result<Executable> made);
  void evict();
  void work();
};

// Plain kernels compile soon: one a node, none of the large templates of tensor cores.
static Result<Executable> compile_plain(Graph& graph, const PlanCacheOptions& options) {
  PlanOptions plain = options.plan;
  plain.fuse = false;
  plain.architecture.clear();
  auto plan = Plan::make(graph, plain);
  SINTER_TRY(plan);
  return load(*plan, options.device);
}

Result<PlanCache::Impl::ClassPlan> PlanCache::Impl::plan_class(Graph& graph, Extents extents) {
  std::vector<ClassSource> beside;
  auto plan = classes->plan(graph, extents, &beside);
  SINTER_TRY(plan);
  return ClassPlan{*plan, std::move(beside)};
}

// `plan`: where it is made already.
Result<Executable> PlanCache::Impl::compile_fast(Graph& graph, Extents extents,
                                                 std::optional<ClassPlan> plan) {
  if (!classes) return compile(graph, options.device, options.plan);
  if (!plan) {
    auto made = plan_class(graph, extents);
    SINTER_TRY(made);
    plan = std::move(*made);
  }
  if (!options.device.is_cpu() && !has_compiled(plan->plan)) compile_class(*plan);
  return load(plan->plan, options.device);
}

// The plan's kernels and those that plans of other extents have in place of these, on all cores at
// once, so that these plans compile nothing. What fails is tried again, and reported, by a plan
// that has it.
void PlanCache::Impl::compile_class(const ClassPlan& plan) {
  const auto target = options.device.target();
  if (!target) return;
  std::vector<CompileRequest> requests;
  std::deque<std::string> texts;
  for (const PlanKernel& k : plan.plan.data().kernels)
    requests.push_back({texts.emplace_back(canonical_text(k)), k.entry, *target});
  const std::size_t own = requests.size();
  for (const ClassSource& k : plan.beside) requests.push_back({k.text, k.entry, *target});
  const auto compiled = compile_kernels(requests, options.plan);
  const std::lock_guard lock(mutex);
  for (std::size_t i = own; i < requests.size(); ++i)
    if (compiled[i]) kernels.emplace(requests[i].entry);
}

// Whether all of the plan's kernels are, for plans of other extents.
bool PlanCache::Impl::has_compiled(const Plan& plan) {
  const std::lock_guard lock(mutex);
  const auto& all = plan.data().kernels;
  return std::all_of(all.begin(), all.end(),
                     [&](const PlanKernel& k) { return kernels.contains(k.entry); });
}

// Whether a plan that was made has kernels that no plan before had, which counts as a compilation.
static bool has_new_kernels(const Executable& made, std::set<std::string>& known) {
  bool any = false;
  for (const PlanKernel& k : made.plan().data().kernels) any |= known.insert(k.entry).second;
  return any;
}

Result<Executable> PlanCache::Impl::get(Extents extents) {
  if (classes) {
    auto checked = classes->check(extents);
    SINTER_TRY(checked);
  }
  const std::vector<std::int64_t> key(extents.begin(), extents.end());
  std::unique_lock lock(mutex);
  auto& slot = entries[key];
  const bool first = !slot;
  if (first) slot = std::make_shared<Entry>();
  const std::shared_ptr<Entry> entry = slot;
  entry->last_use = ++uses;
  if (first) {
    evict();
    lock.unlock();
    return make(key, entry);
  }
  const bool waited = entry->pending;
  changed.wait(lock, [&] { return !entry->pending; });
  if (!entry->errors.empty()) return entry->errors;
  if (!entry->fast) return ++counts.plain, *entry->plain;
  if (!waited) ++counts.hits;
  return *entry->fast;
}

Result<Executable> PlanCache::Impl::make(const std::vector<std::int64_t>& key,
                                         const std::shared_ptr<Entry>& entry) {
  auto graph = std::make_unique<Graph>(options.graph);
  const auto drop = [&] {  // the next call tries again
    const auto found = entries.find(key);
    if (found != entries.end() && found->second == entry) entries.erase(found);
  };
  try {
    builder(*graph, key);
    // The fast kernels are there at once where other extents of the class had them compiled.
    std::optional<ClassPlan> plan;
    if (in_background() && classes && classes->met(key))
      if (auto of_class = plan_class(*graph, key)) plan = std::move(*of_class);
    const bool plain = in_background() && !(plan && has_compiled(plan->plan));
    Result<Executable> made =
        plain ? compile_plain(*graph, options) : compile_fast(*graph, key, plan);
    const std::lock_guard lock(mutex);
    if (!made) drop();
    publish(*entry, !plain, made);
    if (made && plain) {
      ++counts.plain;
      jobs.push_back({entry, std::move(graph), key, std::move(plan)});
      changed.notify_all();
    }
    return made;
  } catch (...) {  // the builder's own; who waits for it must not wait forever
    const std::lock_guard lock(mutex);
    drop();
    publish(*entry, !in_background(),
            Diagnostic{.rule = Rule::graph_no_output, .seen = "a builder that threw an exception"});
    throw;
  }
}

void PlanCache::Impl::publish(Entry& entry, bool fast, Result<Executable> made) {
  if (fast && (!made || has_new_kernels(*made, kernels) || !classes)) ++counts.compiles;
  if (made)
    (fast ? entry.fast : entry.plain) = std::move(*made);
  else if (entry.pending)
    entry.errors = made.errors();
  else
    ++counts.failed, failure = made.errors();
  if (entry.fast) entry.plain.reset();
  entry.pending = false;
  changed.notify_all();
}

void PlanCache::Impl::evict() {
  while (entries.size() > std::max<std::size_t>(options.capacity, 1)) {
    auto oldest = entries.end();
    for (auto e = entries.begin(); e != entries.end(); ++e)
      if (!e->second->pending &&
          (oldest == entries.end() || e->second->last_use < oldest->second->last_use))
        oldest = e;
    if (oldest == entries.end()) return;  // all are being compiled
    entries.erase(oldest);
    ++counts.evicted;
  }
}

void PlanCache::Impl::work() {
  std::unique_lock lock(mutex);
  while (true) {
    changed.wait(lock, [&] { return ending || !jobs.empty(); });
    if (ending) return;
    Job job = std::move(jobs.front());
    jobs.pop_front();
    working = true;
    lock.unlock();
    auto made = [&]() -> Result<Executable> {
      try {
        return compile_fast(*job.graph, job.extents, job.plan);
      } catch (const std::exception& e) {  // would end the process from this thread
        return Diagnostic{.rule = Rule::compiler_error, .seen = e.what()};
      }
    }();
    lock.lock();
    working = false;
    publish(*job.entry, true, std::move(made));
  }
}

PlanCache::PlanCache(GraphBuilder builder, PlanCacheOptions options)
    : impl_(new Impl(std::move(builder), std::move(options))) {
  const PlanCacheOptions& o = impl_->options;
  if (!o.extents.empty()) {
    PlanOptions plan = o.plan;
    // Where the device has no target, the first plan says so.
    if (auto target = o.device.target(); plan.architecture.empty() && target)
      plan.architecture = std::move(*target);
    impl_->classes.emplace(impl_->builder, o.extents, o.graph, std::move(plan));
  }
  if (impl_->in_background()) impl_->worker = std::thread([this] { impl_->work(); });
}

PlanCache::~PlanCache() {
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->ending = true;
    impl_->changed.notify_all();
  }
  if (impl_->worker.joinable()) impl_->worker.join();
  delete impl_;
}

Status PlanCache::check() const {
  return impl_->classes ? impl_->classes->check_described() : Status(Done{});
}
Result<Executable> PlanCache::get(Extents extents) { return impl_->get(extents); }
Result<Executable> PlanCache::get(std::initializer_list<std::int64_t> extents) {
  return impl_->get({extents.begin(), extents.size()});
}

void PlanCache::wait() {
  std::unique_lock lock(impl_->mutex);
  impl_->changed.wait(lock, [&] { return impl_->jobs.empty() && !impl_->working; });
}

std::string PlanCache::explain() const {
  return impl_->classes ? impl_->classes->explain() : std::string();
}

Diagnostics PlanCache::failure() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->failure;
}

PlanCacheCounts PlanCache::counts() const {
  const std::lock_guard lock(impl_->mutex);
  PlanCacheCounts counts = impl_->counts;
  if (impl_->classes) counts.classes = impl_->classes->count();
  counts.kernels = static_cast<std::int64_t>(impl_->kernels.size());
  counts.held = static_cast<std::int64_t>(impl_->entries.size());
  return counts;
}

}  // namespace sinter
