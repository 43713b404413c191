// The tables of devices that planning reads.
#include "target/device_model.hpp"

#include <algorithm>

#include "support/catch.hpp"
#include "target/target.hpp"

using namespace sinter;

TEST_CASE("every target's table is complete") {
  const auto targets = modelled_targets();
  for (std::string_view target : {"", "sm_80", "sm_89", "sm_90a", "sm_100a", "sm_120a"})
    CHECK(std::find(targets.begin(), targets.end(), target) != targets.end());
  for (std::string_view target : targets) {
    CAPTURE(target);
    const DeviceModel d = device_model(target);
    CHECK(d.target == target);
    CHECK((target.empty() || valid_target(target)));
    CHECK(!d.gpu.empty());
    CHECK(d.sms > 0);
    CHECK(d.enough_ctas >= 3 * d.sms);
    CHECK(d.threads_per_sm >= 1024);
    CHECK(d.registers_per_sm == 65536);
    CHECK(d.shared_reserved > 0);
    CHECK(d.shared_per_cta + d.shared_reserved <= d.shared_per_sm);
    CHECK(d.shared_per_cta <= static_cast<int>(most_shared_bytes()));
    CHECK(d.l2_bytes >= 40 << 20);
    CHECK(d.clock > 1000);
    CHECK(d.memory_bandwidth > 0);
    CHECK(d.l2_bandwidth > d.memory_bandwidth);
    CHECK(d.sm_bandwidth * d.sms > d.memory_bandwidth);  // no SM alone fills the memory
    CHECK(d.sm_bandwidth < d.memory_bandwidth);
    CHECK(d.launch_microseconds > 0);
    CHECK(d.start_microseconds > 0);
    CHECK(d.ordinary_operations >= 128);
    CHECK(d.tensor_operations > d.ordinary_operations);
    CHECK(d.mma_operations > 0);
    CHECK(d.mma_operations <= d.tensor_operations);
    CHECK(d.double_operations > 0);
    CHECK(d.double_operations <= d.ordinary_operations);
    CHECK(d.clusters_at_once[0] == d.sms);
    for (int blocks = 1; blocks <= 8; ++blocks) {
      const int clusters = d.clusters_at_once[static_cast<std::size_t>(blocks - 1)];
      CHECK(clusters > 0);
      CHECK(clusters * blocks <= d.sms);
    }
    // Code for targets without a letter runs on later GPUs, whose least shared memory is 99 KB.
    if (target.empty() || (target.back() != 'a' && target.back() != 'f'))
      CHECK(d.shared_per_cta <= 99 << 10);
    // The accelerator writes to shared memory of a whole cluster.
    CHECK((d.has_clusters || !d.has_tma));
    CHECK((d.has_tma || !d.has_wgmma));
  }
}

TEST_CASE("only sm_90a has multiplications of warpgroups") {
  for (std::string_view target : modelled_targets())
    CHECK(device_model(target).has_wgmma == (target == "sm_90a"));
}

TEST_CASE("a target without a table is planned for as any GPU") {
  DeviceModel d = device_model("sm_86");
  const DeviceModel any = device_model();
  CHECK(d.target == "sm_86");
  CHECK((!d.has_wgmma && !d.has_tma && !d.has_clusters));
  CHECK(d.sms == any.sms);
  CHECK(d.shared_per_cta == any.shared_per_cta);
}
