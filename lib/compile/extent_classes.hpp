// Plans by extents: those whose extents are of the same classes share a PlanClass.
#pragma once
#include <map>
#include <mutex>

#include "compile/plan_class.hpp"
#include "sinter/plan_cache.hpp"

namespace sinter {

class ExtentClasses {
 public:
  // `builder` is kept by reference. Any thread may call what follows.
  ExtentClasses(const GraphBuilder& builder, std::vector<DynamicExtent> extents, GraphOptions graph,
                PlanOptions plan)
      : builder_(builder),
        extents_(std::move(extents)),
        graph_(std::move(graph)),
        plan_(std::move(plan)) {}

  Status check_described() const;  // whether the extents that change are well-formed
  Status check(GraphBuilder::Extents extents) const;
  // `graph`: what the builder makes of the extents. `beside`, where not null: the kernels that are
  // compiled together with the plan's, for plans of other extents.
  Result<Plan> plan(Graph& graph, GraphBuilder::Extents extents,
                    std::vector<ClassSource>* beside = nullptr);
  bool met(GraphBuilder::Extents extents) const;  // whether their class was
  std::int64_t count() const;                     // of classes that were met
  // The classes that were met, a line each: the ranges of their extents, how many kernels are the
  // same for all of them; and below it, why the others are not.
  std::string explain() const;

 private:
  using Key = std::vector<std::int64_t>;  // the largest extents of the class
  Key key_of(GraphBuilder::Extents extents) const;
  std::shared_ptr<const PlanClass> known(const Key& key) const;
  Result<std::shared_ptr<const PlanClass>> class_of(GraphBuilder::Extents extents);
  Result<std::shared_ptr<PlanClass>> make(const Key& key);

  const GraphBuilder& builder_;
  const std::vector<DynamicExtent> extents_;
  const GraphOptions graph_;
  const PlanOptions plan_;
  // The builder is the user's and may wait for what a thread holds that asks what is known: a
  // Python one waits for the interpreter's lock. So it is not called while mutex_ is held.
  std::mutex making_;
  RowSchedules::Known schedules_;  // of the classes that were made
  mutable std::mutex mutex_;
  std::map<Key, std::shared_ptr<const PlanClass>> classes_;
};

}  // namespace sinter
