// Plan files: byte-identical round trips, and no damaged or altered file accepted.
#include <functional>
#include <random>

#include "json/plan_json.hpp"
#include "sinter/compile.hpp"
#include "sinter/json.hpp"
#include "sinter/operations.hpp"
#include "support/catch.hpp"
#include "target/device_model.hpp"

using namespace sinter;

namespace {

PlanData small_plan() {
  Graph g({.name = "p \"quoted\"", .io = f16});
  auto x = g.tensor({.name = "x", .dim = {4, 8}, .stride = {1, 4}, .uid = 3});
  g.output(exp(x) + 1.0, "y", {.data_type = f32});
  PlanData p;
  p.version = "0.1.0";
  p.graph_json = graph_to_json(g);
  p.name = g.options().name;
  p.architecture = "sm_90a";
  p.tensors = {{"x", f16, {4, 8}, {1, 4}, 16, 64, 3, false},
               {"y", f32, {4, 8}, {8, 1}, 16, 128, std::nullopt, true}};
  p.workspace_bytes = 1024;
  PlanKernel k;
  k.entry = "sinter_exp_add_1";
  k.family = Family::pointwise;
  k.nodes = {"exp #0", "add #1"};
  k.config = {{"threads", 256}, {"elements", 4}};
  k.source = "// x\nextern \"C\" __global__ void sinter_exp_add_1() {}\n";
  k.grid = 7;
  k.block = 256;
  k.shared_bytes = 100000;
  k.grid_dependency_wait = true;
  k.maps = {{false, 1, {f32, {8, 4}, {32}, {4, 2}, 32, 0}},
            {true, 512, {tf32, {8}, {}, {8}, 0, 16}}};
  k.arguments = {{KernelArgument::Kind::tensor, 0, 8},
                 {KernelArgument::Kind::tensor, 1, 8},
                 {KernelArgument::Kind::workspace, 512, 8},
                 {KernelArgument::Kind::scalar, 0x3f800000, 4},
                 {KernelArgument::Kind::tensor_map, 1, kTensorMapBytes}};
  k.bytes = 192;
  k.flops = 64.5;
  k.microseconds = 2.25;
  k.accesses = {{false, 0, false, 64}, {true, 0, true, 128}};
  k.machine_code = {{"sm_90a", std::string("\x7f"
                                           "ELF\0\1\2",
                                           7)},
                    {"sm_100", "x"}};
  p.kernels = {k, k};
  p.buffers = {{"h", "exp #0", f32, 512, 128, 0, 1}};
  p.cuts = {{"pointwise", "exp #0", "x", "because", "add #1", "do this"}};
  return p;
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const auto at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

void check_refused(const std::function<void(PlanData&)>& change, const std::string& about) {
  PlanData p = small_plan();
  change(p);
  const auto r = json::plan_from_json(json::plan_to_json(p), "p.json");
  REQUIRE_FALSE(r.ok());
  INFO(r.error().message());
  CHECK(r.error().rule == Rule::plan_format);
  CHECK(r.error().message().find(about) != std::string::npos);
}

}  // namespace

TEST_CASE("a plan file reads back as the same bytes") {
  const std::string text = json::plan_to_json(small_plan());
  const auto plan = Plan::from_json(text, "p.json");
  if (!plan) FAIL(plan.error().message());
  CHECK(plan->to_json() == text);
  CHECK(plan->data().kernels[0].machine_code.at("sm_90a").size() == 7);
  CHECK(plan->data().kernels[0].arguments[3].bytes == 4);
  CHECK(plan->data().tensors[0].uid == 3);
  CHECK(plan->tensors()[0].uid == 3);
  CHECK(plan->data().architecture == "sm_90a");
  const PlanKernel &k = plan->data().kernels[1], written = small_plan().kernels[1];
  CHECK(k.shared_bytes == 100000);
  CHECK(k.grid_dependency_wait);
  CHECK(k.arguments[4].kind == KernelArgument::Kind::tensor_map);
  CHECK(k.arguments[4].value == 1);
  CHECK(k.arguments[4].bytes == kTensorMapBytes);
  REQUIRE(k.maps.size() == 2);
  for (std::size_t i = 0; i < 2; ++i) {
    CHECK(k.maps[i].workspace == written.maps[i].workspace);
    CHECK(k.maps[i].value == written.maps[i].value);
    CHECK(k.maps[i].map == written.maps[i].map);
  }
}

TEST_CASE("a plan file without tensors in the workspace, kernels or cuts reads back") {
  Graph g;
  g.output(identity(g.tensor({.name = "x", .dim = {0, 3}})), "y");
  PlanData p;
  p.graph_json = graph_to_json(g);
  p.tensors = {{"x", f32, {0, 3}, {3, 1}, 16, 0, std::nullopt, false},
               {"y", f32, {0, 3}, {3, 1}, 16, 0, std::nullopt, true}};
  const std::string text = json::plan_to_json(p);
  const auto r = json::plan_from_json(text, "");
  if (!r) FAIL(r.error().message());
  CHECK(json::plan_to_json(*r) == text);
}

TEST_CASE("another layout of the same plan is read, another content is not") {
  const std::string text = json::plan_to_json(small_plan());
  std::string flat = text;
  for (char& c : flat)
    if (c == '\n') c = ' ';
  CHECK(json::plan_from_json(flat, "").ok());
  for (auto [from, to] : {std::pair{"\"grid\": 7", "\"grid\": 8"},
                          {"\"workspace\": 512", "\"workspace\": 528"},
                          {"because", "becausE"},
                          {"256, \"elements\"", "128, \"elements\""},
                          {"\"grid_dependency_wait\": true", "\"grid_dependency_wait\": false"},
                          {"\"mode\": \"exp\"", "\"mode\": \"log\""},
                          {"// x", "// y"},
                          {"\"hash\": \"", "\"hash\": \"0"}}) {
    const auto r = json::plan_from_json(replaced(text, from, to), "");
    REQUIRE_FALSE(r.ok());
    CHECK(r.error().rule == Rule::plan_format);
    CHECK(r.error().attribute == "hash");
  }
}

TEST_CASE("numbers of a plan that would reach memory or a launch are checked") {
  using K = KernelArgument::Kind;
  check_refused([](auto& p) { p.kernels[1].arguments[0].value = 2; }, "kernels[1].arguments[0]");
  check_refused([](auto& p) { p.kernels[0].arguments[0].value = -1; }, "0 to 1");
  check_refused([](auto& p) { p.kernels[0].arguments[2].value = 1025; }, "0 to 1024");
  check_refused([](auto& p) { p.kernels[0].arguments[2].value = -8; }, "workspace");
  check_refused([](auto& p) { p.kernels[0].arguments[3] = {K::scalar, 1, 3}; }, "1, 2, 4 or 8");
  check_refused([](auto& p) { p.workspace_bytes = -1; }, "workspace_bytes");
  check_refused([](auto& p) { p.kernels[0].block = 1025; }, "1 to 1024");
  check_refused([](auto& p) { p.kernels[0].block = 0; }, "1 to 1024");
  check_refused([](auto& p) { p.kernels[0].grid = 0x80000000u; }, "kernels[0].grid");
  check_refused([](auto& p) { p.kernels[0].entry = "a b"; }, "identifier");
  check_refused([](auto& p) { p.kernels[0].source.assign(5 << 20, ' '); }, "4 MiB");
  check_refused([](auto& p) { p.kernels[0].names = {"x", "+"}; }, "C identifiers");
  check_refused([](auto& p) { p.kernels[0].machine_code["../x"] = ""; }, "sm_90a");
  check_refused([](auto& p) { p.kernels[0].bytes = -1; }, "kernels[0].bytes");
  check_refused([](auto& p) { p.kernels[0].accesses[1].value = 1; }, "accesses[1].buffer");
  check_refused([](auto& p) { p.kernels[0].accesses[0].value = 2; }, "accesses[0].tensor");
  check_refused([](auto& p) { p.kernels[0].accesses[0].bytes = -1; }, "accesses[0].bytes");
  check_refused([](auto& p) { p.buffers[0].bytes = 1024; }, "buffers[0].bytes");
  check_refused([](auto& p) { p.buffers[0].last = 2; }, "buffers[0].last");
  check_refused([](auto& p) { p.kernels[0].shared_bytes = most_shared_bytes() + 1; },
                "0 to 232448");
  check_refused([](auto& p) { p.kernels[0].arguments[4].value = 2; }, "tensor_map");
  check_refused([](auto& p) { p.kernels[0].arguments[4].value = -1; }, "0 to 1");
  check_refused([](auto& p) { p.kernels[0].maps.resize(257, p.kernels[0].maps[0]); }, "256");
  check_refused([](auto& p) { p.architecture = "sm_90b"; }, "architecture");
  // The buffer lies from 512 to 640, of both kernels.
  for (const std::int64_t offset : {0, 511, 640, 1024})
    check_refused([&](auto& p) { p.kernels[1].arguments[2].value = offset; },
                  "kernels[1].arguments");
  for (const std::int64_t offset : {0, 640})
    check_refused([&](auto& p) { p.buffers[0].offset = offset; }, "a buffer of this kernel");
  check_refused([](auto& p) { p.kernels[0].maps[1].value = 256; }, "a buffer of this kernel");
  check_refused([](auto& p) { p.buffers[0].last = 0; }, "kernels[1]");
  check_refused([](auto& p) { p.kernels[0].grid = 0; }, "kernels[0].grid");
}

TEST_CASE("a tensor map must be one that hardware and plan allow") {
  const auto refused = [](const std::function<void(TensorMap&)>& change, const std::string& about) {
    check_refused([&](auto& p) { change(p.kernels[0].maps[0].map); }, about);
  };
  const auto elsewhere = [](bool workspace, std::int64_t value, const std::string& about) {
    check_refused(
        [&](auto& p) {
          p.kernels[0].maps[0].workspace = workspace;
          p.kernels[0].maps[0].value = value;
        },
        about);
  };
  elsewhere(false, 2, "maps[0].tensor");
  elsewhere(false, -1, "0 to 1");
  elsewhere(true, -16, "maps[0].workspace");
  elsewhere(true, 1040, "0 to 1024");
  elsewhere(true, 8, "multiples of 16");
  elsewhere(true, 912, "112 bytes");  // reaches 128
  elsewhere(false, 0, "64 bytes");
  refused([](auto& m) { m.type = DataType::none; }, "maps[0].data_type");
  refused([](auto& m) { m.dim = {}; }, "maps[0].dim");
  refused([](auto& m) { m.dim = {1, 1, 1, 1, 1, 1}; }, "1 to 5 entries");
  refused([](auto& m) { m.dim = Dims::filled(9, 1); }, "maps[0].dim");
  refused([](auto& m) { m.dim[1] = 0; }, "maps[0].dim[1]");
  refused([](auto& m) { m.dim[0] = (std::int64_t{1} << 32) + 1; }, "1 to 4294967296");
  refused([](auto& m) { m.dim[1] = std::int64_t{1} << 32; }, "128 bytes");
  refused([](auto& m) { m.dim[1] = 5; }, "maps[0].dim[1]");
  refused([](auto& m) { m.dim[0] = 9; }, "128 bytes");
  refused([](auto& m) { m.stride = {}; }, "one entry fewer than dim");
  refused([](auto& m) { m.stride = {32, 32}; }, "maps[0].stride");
  refused([](auto& m) { m.stride[0] = 24; }, "maps[0].stride[0]");
  refused([](auto& m) { m.stride[0] = -16; }, "multiples of 16 below 2^40");
  refused([](auto& m) { m.stride[0] = std::int64_t{1} << 40; }, "multiples of 16 below 2^40");
  refused([](auto& m) { m.stride[0] = 48; }, "128 bytes");
  refused([](auto& m) { m.box = {}; }, "maps[0].box");
  refused([](auto& m) { m.box = {4}; }, "as many entries as dim");
  refused([](auto& m) { m.box[1] = 0; }, "maps[0].box[1]");
  refused([](auto& m) { m.box[1] = 257; }, "1 to 256");
  refused([](auto& m) { m.box[0] = 5; }, "multiples of 16 bytes");
  refused([](auto& m) { m.box[0] = 12; }, "at most the 32 bytes");
  refused([](auto& m) { m.swizzle = 16; }, "0, 32, 64 or 128");
  refused([](auto& m) { m.swizzle = 256; }, "maps[0].swizzle");
  refused([](auto& m) { m.swizzle = -1; }, "maps[0].swizzle");
  refused([](auto& m) { m.offset = 8; }, "maps[0].offset");
  refused([](auto& m) { m.offset = -16; }, "multiples of 16 from 0 on");
  refused([](auto& m) { m.offset = 16; }, "128 bytes");
  refused([](auto& m) { m.offset = 1 << 20; }, "maps[0].offset");
  const std::string text = json::plan_to_json(small_plan());
  for (const auto& other : {replaced(text, "\"data_type\": \"tf32\"", "\"data_type\": \"f31\""),
                            replaced(text, "\"swizzle\": 0", "\"swizzled\": 0"),
                            replaced(text, "{\"tensor\": 1, \"data_type\"", "{\"data_type\""),
                            replaced(text, "\"maps\": [", "\"maps\": [7, ")})
    CHECK(json::plan_from_json(other, "").error().rule == Rule::plan_format);
}

TEST_CASE("the tensors of a plan have to be those of its graph") {
  check_refused([](auto& p) { p.tensors[0].name = "z"; }, "'z'");
  check_refused([](auto& p) { p.tensors[0].name = "exp_1"; }, "inside the graph");
  check_refused([](auto& p) { p.tensors[0].type = bf16; }, "f16, as its graph says");
  check_refused([](auto& p) { p.tensors[0].dim = {8, 4}; }, "[4, 8]");
  check_refused([](auto& p) { p.tensors[0].stride = {8, 1}; }, "[1, 4]");
  check_refused([](auto& p) { p.tensors[1].bytes = 64; }, "128");
  check_refused([](auto& p) { p.tensors[1].written = false; }, "written");
  check_refused([](auto& p) { p.tensors[0].alignment = 1; }, "alignment");
  check_refused([](auto& p) { p.tensors[0].uid = 4; }, "uid");
  check_refused([](auto& p) { p.tensors[1] = p.tensors[0]; }, "second of this name");
  check_refused(
      [](auto& p) {
        p.tensors.pop_back();
        p.kernels.clear();
      },
      "tensor 'y', tensors");
  check_refused(
      [](auto& p) {
        p.tensors.erase(p.tensors.begin());
        p.kernels.clear();
      },
      "no entry for this input");
  check_refused([](auto& p) { p.graph_json = "{\"format\": \"sinter.graph\", \"version\": 2}"; },
                "version");
}

TEST_CASE("a document of another format or version is no plan") {
  const std::string text = json::plan_to_json(small_plan());
  for (const auto& other :
       {replaced(text, "sinter.plan", "sinter.graph"),
        replaced(text, "\"version\": 3", "\"version\": 2"), replaced(text, "\"cuts\"", "\"cut\""),
        replaced(text, "\"block\"", "\"blocks\""), std::string("[]"), std::string("{}"),
        small_plan().graph_json}) {
    const auto r = Plan::from_json(other, "p.json");
    REQUIRE_FALSE(r.ok());
    CHECK(r.error().rule == Rule::plan_format);
    CHECK(r.error().file == "p.json");
  }
}

TEST_CASE("a kernel may have the machine code of one before it, and of no other") {
  const std::string text = json::plan_to_json(small_plan()), same = "\"sm_90a\": 0";
  CHECK(Plan::from_json(text, "p.json").ok());
  for (const char* number : {"1", "2", "-1", "0.5", "true", "null"}) {
    INFO(number);
    const auto r = Plan::from_json(replaced(text, same, std::string("\"sm_90a\": ") + number), "");
    REQUIRE_FALSE(r.ok());
    CHECK(r.error().rule == Rule::plan_format);
    CHECK(r.error().message().find("kernels[1].machine_code.sm_90a") != std::string::npos);
  }
}

TEST_CASE("every beginning of a plan file and random damage is refused") {
  const std::string text = json::plan_to_json(small_plan());
  // The last line break alone may be missing.
  for (std::size_t n = 0; n + 1 < text.size(); ++n)
    REQUIRE_FALSE(json::plan_from_json(std::string_view(text).substr(0, n), "").ok());
  std::mt19937 random(1);
  for (int i = 0; i < 3000; ++i) {
    std::string damaged = text;
    for (unsigned j = 0; j <= random() % 3; ++j)
      damaged[random() % damaged.size()] = static_cast<char>(random() % 256);
    const auto r = json::plan_from_json(damaged, "");
    // What is read in spite of it must be the same plan: only blanks were touched.
    if (r) REQUIRE(json::plan_to_json(*r) == text);
  }
}
