// What each engine, an alternative of KernelConfig, has of its own in a generated file. emit.cpp
// puts the file together, in one order for all of them.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "emit/body_text.hpp"
#include "emit/config_constants.hpp"
#include "emit/kernel_names.hpp"
#include "emit/text_writer.hpp"
#include "schedule/scheduled_kernel.hpp"

namespace sinter {

// A tensor map among the arguments.
struct MapArgument {
  std::string name;
  int port;
  TensorMap map;
};
// Of boxes, with the maps of what stands behind them along k.
void add_maps(std::vector<MapArgument>& maps, const BoxedOperand& o, std::string_view name);

// A number that only people read, behind the constants of Config: see `explain`.
using Facts = std::vector<std::pair<std::string, std::int64_t>>;

class EngineText {
 public:
  EngineText(const ScheduledKernel& kernel, const KernelNames& names);
  EngineText(const EngineText&) = delete;
  virtual ~EngineText() = default;

  // The file of device/family, without its ending, and what the first line says of the kernel.
  virtual std::string header() const = 0;
  virtual std::string_view summary() const = 0;
  // Further ones, by their paths below sinter/device.
  virtual std::vector<std::string> more_headers() const { return {}; }
  // What the entry's name says of it, besides the modes of its statements.
  virtual std::vector<std::string> words() const { return {}; }
  // Of Config: types in front of the constants, and what the engine alone has behind them.
  virtual void print_types(TextWriter&) const {}
  virtual void print_own_config(TextWriter&) const {}
  // What Coordinates are called where no pack may reach out of its row.
  virtual std::string_view coordinates() const { return {}; }
  // Of two products the first one's Config.
  virtual void print_first(TextWriter&) const {}
  // In the order of Args.
  virtual std::vector<MapArgument> maps() const { return {}; }
  // All that stands between Args and the entry.
  virtual void print_structs(TextWriter& out) const = 0;
  // The entry's statements.
  virtual std::string call() const = 0;
  // What the entry says of clusters.
  virtual std::string_view cluster() const { return {}; }
  // Warps that exchange registers want it known how many they begin with.
  virtual bool exchanges_registers() const { return false; }
  virtual Facts facts() const { return {}; }
  // Bodies whose loads, random numbers and reductions need structs in Config.
  virtual std::vector<const BodyText*> bodies() const { return {&body_}; }

 protected:
  // Of engines with estimates of their own: the time of the tile that runs, which may be a measured
  // one.
  Facts::value_type estimated() const;

  const ScheduledKernel& kernel_;
  const KernelSpec& spec_;
  const KernelNames& names_;
  const BodyText body_;
};

// Of each engine, in the file of its text.
using EngineTextPtr = std::unique_ptr<EngineText>;
#define SINTER_ENGINE(Config) \
  EngineTextPtr engine_text(const Config&, const ScheduledKernel&, const KernelNames&);
SINTER_ENGINES(SINTER_ENGINE)
#undef SINTER_ENGINE
// The one that the kernel is scheduled on.
EngineTextPtr engine_text(const ScheduledKernel& kernel, const KernelNames& names);

}  // namespace sinter
