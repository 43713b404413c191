// The generated text of the hand-built specs, compared with files that people read and approve:
// SINTER_APPROVE=1 rewrites them. Every kernel must also compile for each supported target.
#include <elf.h>
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>

#include "compile/make_plan.hpp"
#include "emit/spelling.hpp"
#include "golden/planned_kernels.hpp"
#include "golden/specs.hpp"
#include "plan/plan_data.hpp"
#include "planner/explain/explain.hpp"
#include "runtime/compiler.hpp"
#include "sinter/json.hpp"
#include "support/can_compile.hpp"
#include "support/catch.hpp"
#include "support/compiled_kernels.hpp"
#include "support/environment.hpp"
#include "support/scheduled.hpp"

namespace sinter::golden {
namespace {

std::string kernel_path(const std::string& name) {
  return test::source_tree() + "/tests/golden/kernels/" + name + ".cu";
}

std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

bool approving() {
  const char* approve = std::getenv("SINTER_APPROVE");
  return approve && std::string(approve) == "1";
}

TEST_CASE("generated kernels are the approved ones") {
  for (const auto& [name, spec] : all_specs()) {
    INFO("kernel " << name << "; SINTER_APPROVE=1 rewrites it");
    const EmittedKernel kernel = emitted(spec);
    if (approving()) std::ofstream(kernel_path(name), std::ios::binary) << kernel.source;
    CHECK(kernel.source == read_file(kernel_path(name)));
  }
}

TEST_CASE("generated kernels are the approved ones, for sm_90a") {
  for (const auto& [name, spec] : hopper_specs()) {
    INFO("kernel " << name << "; SINTER_APPROVE=1 rewrites it");
    const EmittedKernel kernel = emitted(spec, "sm_90a");
    if (approving()) std::ofstream(kernel_path(name), std::ios::binary) << kernel.source;
    CHECK(kernel.source == read_file(kernel_path(name)));
    CHECK(kernel.arguments[0].map);
    CHECK(kernel.arguments[1].map.has_value() == !spec.contraction().rows.gathers());
    CHECK_FALSE(emitted(spec, "sm_80").arguments[0].map);
  }
}

TEST_CASE("generated kernels are the approved ones in each form of an engine") {
  for (const auto& [name, kernel] : planned_kernels()) {
    INFO("kernel " << name << "; SINTER_APPROVE=1 rewrites it");
    if (approving()) std::ofstream(kernel_path(name), std::ios::binary) << kernel.source;
    CHECK(kernel.source == read_file(kernel_path(name)));
  }
}

// Where the compiler does not see through the multiplications that are in flight, it makes them
// wait for each other and says so; where registers do not suffice, it says that, too.
TEST_CASE("kernels for sm_90a compile without a complaint") {
  std::vector<test::NamedKernel> kernels;
  for (const auto& [name, spec] : hopper_specs()) {
    const auto choice = scheduled(spec, "sm_90a").ranked_choice();
    // Who copies rows shares none with tiles beside.
    REQUIRE(choice.configurations.size() > (spec.contraction().rows.gathers() ? 12 : 20));
    const std::size_t every = choice.configurations.size() / 6;
    for (std::size_t i = 0; i < choice.configurations.size(); ++i) {
      // Every sixth, and those whose products once waited for each other.
      if (i % every != 0 &&
          !choice.configurations[i].starts_with("64x192 by 2 alternating, cluster 1x1"))
        continue;
      const Tuning tuning{{{choice.problem, choice.configurations[i]}}};
      const EmittedKernel kernel = emitted(spec, "sm_90a", tuning);
      kernels.push_back({name + ", " + choice.configurations[i], kernel.source, kernel.entry});
    }
  }
  test::expect_no_complaint(kernels, "sm_90a", {{"serialized", "setmaxnreg ignored", "spill"}});
}

// lib/schedule reckons what a launch asks for, and the kernel asserts that it lays out as much.
TEST_CASE("kernels whose launch asks for other shared memory do not compile", "[nvrtc]") {
  if (!test::can_compile()) return;
  std::vector<PlannedKernel> kernels = planned_kernels();
  for (const auto& [name, spec] : hopper_specs()) {
    const EmittedKernel k = emitted(spec, "sm_90a");
    kernels.push_back({name, {}});
    kernels.back().kernel.source = k.source, kernels.back().kernel.entry = k.entry;
  }
  std::set<std::string> forms;
  for (auto& [name, k] : kernels) {
    const std::string bytes = "shared_bytes = ";
    const auto at = k.source.find(bytes);
    if (at == std::string::npos || !forms.insert(name).second) continue;
    INFO("kernel " << name);
    k.source.insert(at + bytes.size(), "16 + ");
    const auto code = compile_uncached({k.source, k.entry, "sm_90a", false});
    REQUIRE_FALSE(code);
    CHECK(code.error().message().find("static assertion failed") != std::string::npos);
  }
  CHECK(forms.size() > 20);
}

// So that every list of sums in core/wgmma_named.cuh is compiled.
TEST_CASE("tiles of every width compile", "[nvrtc]") {
  if (!test::can_compile()) return;
  std::vector<test::NamedKernel> kernels;
  for (int width = 8; width <= 256; width += width < 128 ? 8 : 16) {
    INFO(width << " columns");
    const KernelSpec spec =
        hopper_columns(device_model("sm_90a").sms * width);  // one round of tiles
    const auto choice = scheduled(spec, "sm_90a").ranked_choice();
    const std::string start = fmt::format("64x{} by 1 together, cluster 1x1, split 1,", width);
    const auto at = std::find_if(
        choice.configurations.begin(), choice.configurations.end(),
        [&](const std::string& c) { return c.starts_with(start) && c.ends_with(", swap_ab"); });
    REQUIRE(at != choice.configurations.end());
    const EmittedKernel kernel = emitted(spec, "sm_90a", {{{choice.problem, *at}}});
    kernels.push_back({*at, kernel.source, kernel.entry});
  }
  test::compile_together(kernels, "sm_90a", {});
}

// Of the corpus, for every GPU and for sm_90a.
const std::vector<PlanKernel>& corpus_kernels() {
  static std::vector<PlanKernel> result;
  if (!result.empty()) return result;
  std::map<std::string, PlanKernel> kernels;  // by text
  for (const auto& entry :
       std::filesystem::directory_iterator(test::source_tree() + "/tests/corpus")) {
    if (entry.path().extension() != ".json") continue;
    const auto graph = graph_from_json(read_file(entry.path()), entry.path().stem().string());
    REQUIRE(graph);
    for (const char* target : {"", "sm_90a"}) {
      const auto plan = make_plan(**graph, {.architecture = target}, {}, nullptr);
      REQUIRE(plan);
      for (const PlanKernel& k : plan->data().kernels) kernels.try_emplace(k.source, k);
      for (const PlanCut& c : plan->data().cuts) CHECK(c.pattern != kWrongRewrite);
    }
  }
  for (auto& [source, kernel] : kernels) result.push_back(std::move(kernel));
  return result;
}

// The first line that holds what only the device library may contain, or a character or include
// that it should not; empty where none does.
std::string wrong_line(const std::string& source) {
  const auto is_word = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '_';
  };
  std::istringstream lines(source);
  for (std::string line; std::getline(lines, line);) {
    if (std::ranges::any_of(line, [](char c) { return c < ' ' || c > '~'; })) return line;
    if (line.find("/etc") != std::string::npos) return line;
    if (line.starts_with("//")) continue;
    const std::string include = "#include \"sinter/";
    if (line.starts_with("#include ") && !line.starts_with(include)) return line;
    // Of joined products, the one whose part of k a box is of.
    if (const auto at = line.find_first_not_of(' ');
        at != std::string::npos && line.compare(at, 9, "if (k >= ") == 0)
      continue;
    if (line.find('?') != std::string::npos) return line;
    for (auto from = line.begin(); from != line.end();) {
      from = std::find_if(from, line.end(), is_word);
      const auto end = std::find_if_not(from, line.end(), is_word);
      const std::string_view word(from, end);
      for (const char* mechanism : {"for", "while", "do", "goto", "asm", "if", "__shared__",
                                    "__syncthreads", "threadIdx", "blockIdx"})
        if (word == mechanism) return line;
      from = end;
    }
  }
  return {};
}

TEST_CASE("generated text holds no mechanism and no user text") {
  CHECK(wrong_line("for (int i = 0;") == "for (int i = 0;");
  CHECK(wrong_line("x = threadIdx.x;") == "x = threadIdx.x;");
  CHECK(wrong_line("a ? b : c") == "a ? b : c");
  CHECK(wrong_line("#include \"/tmp/passwd\"\n") == "#include \"/tmp/passwd\"");
  CHECK(wrong_line("const float t = 1; // \xff") != "");
  CHECK(wrong_line("const float before = 1;").empty());
  for (const auto& [name, spec] : all_specs()) CHECK(wrong_line(emitted(spec).source) == "");
  for (const auto& [name, spec] : hopper_specs())
    CHECK(wrong_line(emitted(spec, "sm_90a").source) == "");
  for (const auto& [form, kernel] : planned_kernels()) CHECK(wrong_line(kernel.source) == "");
  for (const PlanKernel& k : corpus_kernels()) CHECK(wrong_line(k.source) == "");
}

TEST_CASE("every file of the device library that kernels of the corpus call has a golden kernel") {
  const auto called = [](const std::string& source, std::set<std::string>& files) {
    const std::string family = "#include \"sinter/device/family/";
    for (auto at = source.find(family); at != std::string::npos; at = source.find(family, at + 1)) {
      const auto name = at + family.size();
      files.insert(source.substr(name, source.find('.', name) - name));
    }
  };
  std::set<std::string> golden, corpus;
  for (const auto& entry :
       std::filesystem::directory_iterator(kernel_path("x").substr(0, kernel_path("x").rfind('/'))))
    called(read_file(entry.path()), golden);
  for (const PlanKernel& k : corpus_kernels()) called(k.source, corpus);
  CHECK(corpus.size() > 20);
  for (const std::string& file : corpus) {
    INFO(file << ".cuh: add a graph to planned_kernels.cpp");
    CHECK(golden.contains(file));
  }
}

TEST_CASE("how every engine's kernels work is explained") {
  for (const PlanKernel& k : corpus_kernels())
    CHECK_FALSE(how_it_works(k, "an H200").starts_with("unknown"));
  for (const auto& [form, kernel] : planned_kernels()) {
    INFO(form);
    CHECK(engine_of(kernel).starts_with(form.starts_with("contraction_window") ? "contraction_wgmma"
                                                                               : form));
    const std::string how = how_it_works(kernel, "an H200");
    CHECK_FALSE(how.starts_with("unknown"));
    if (form.ends_with("_mma") || form.ends_with("_boxes") || form.ends_with("_lines"))
      CHECK(how.find("tensor cores") != std::string::npos);
  }
  PlanKernel none;
  CHECK(how_it_works(none, "an H200").starts_with("unknown"));
}

TEST_CASE("tensors have no names of the generator's own") {
  Identifiers names;
  CHECK(names.add("map_q", "t") == "map_q_t");
  CHECK(names.add("Map: Q", "t") == "map_q_t_2");
  CHECK(names.add("class", "t") == "class_t");
  CHECK(names.add("mapped", "t") == "mapped");
  const std::regex declared("TensorMap ([^;]*);");
  for (const auto& [name, spec] : hopper_specs()) {
    const std::string source = emitted(spec, "sm_90a").source;
    std::smatch maps;
    if (!std::regex_search(source, maps, declared)) continue;
    INFO("kernel " << name << ", " << maps[1].str());
    CHECK(std::regex_match(maps[1].str(), std::regex("map_\\w+(, map_\\w+)*")));
  }
}

TEST_CASE("the same spec gives the same bytes, and another text another entry") {
  const auto specs = all_specs();
  std::vector<std::string> entries;
  for (const auto& [name, spec] : specs) {
    const EmittedKernel first = emitted(spec), second = emitted(spec);
    CHECK(first.source == second.source);
    CHECK(first.entry == second.entry);
    CHECK(first.source.find("void " + first.entry + "(") != std::string::npos);
    entries.push_back(first.entry);
  }
  std::sort(entries.begin(), entries.end());
  CHECK(std::adjacent_find(entries.begin(), entries.end()) == entries.end());
}

TEST_CASE("arguments name every port in order and carry the bits of the scalars") {
  const auto specs = pointwise_specs();
  const auto dropout = std::find_if(specs.begin(), specs.end(),
                                    [](const NamedSpec& s) { return s.name == "dropout"; });
  const EmittedKernel kernel = emitted(dropout->spec);
  REQUIRE(kernel.arguments.size() == 5);
  for (int i = 0; i < 3; ++i) {
    CHECK_FALSE(kernel.arguments[static_cast<std::size_t>(i)].scalar);
    CHECK(kernel.arguments[static_cast<std::size_t>(i)].index == i);
  }
  CHECK(kernel.arguments[3].scalar);
  CHECK(kernel.arguments[3].bytes == 8);
  CHECK(kernel.arguments[3].bits == 77);
  CHECK(kernel.arguments[4].bits == 5);
  const EmittedKernel relu = emitted(specs.front().spec);
  CHECK(relu.arguments.back().bytes == 4);
  CHECK(relu.arguments.back().bits == 0x3e000000u);  // 0.125f
}

// Instructions of sm_90a, 16 bytes each, whose lowest 12 bits name the operation.
std::vector<unsigned> operations(const std::string& cubin, const std::string& entry) {
  const auto read = [&](auto& what, std::size_t at) {
    REQUIRE(at + sizeof(what) <= cubin.size());
    std::memcpy(&what, cubin.data() + at, sizeof(what));
  };
  Elf64_Ehdr file;
  read(file, 0);
  const auto section = [&](std::size_t i) {
    Elf64_Shdr header;
    read(header, file.e_shoff + i * file.e_shentsize);
    return header;
  };
  const Elf64_Shdr names = section(file.e_shstrndx);
  for (std::size_t i = 0; i < file.e_shnum; ++i) {
    const Elf64_Shdr text = section(i);
    if (cubin.c_str() + names.sh_offset + text.sh_name != ".text." + entry) continue;
    std::vector<unsigned> all(text.sh_size / 16);
    for (std::size_t k = 0; k < all.size(); ++k) {
      read(all[k], text.sh_offset + k * 16);
      all[k] &= 0xfff;
    }
    return all;
  }
  return {};
}

// The kernel before may still write what a kernel reads, until the kernel has waited for its end.
void check_order_of_loads(const std::string& cubin, const std::string& entry) {
  // ACQBULK; LD, LDG, LDGSTS, UTMALDG
  constexpr unsigned kWait = 0x82e, kLoads[] = {0x980, 0x981, 0xfae, 0x5b4};
  const std::vector<unsigned> all = operations(cubin, entry);
  const auto wait = std::find(all.begin(), all.end(), kWait);
  CHECK(wait != all.end());
  CHECK(std::find_first_of(all.begin(), wait, std::begin(kLoads), std::end(kLoads)) == wait);
}

void compile_for_all_targets(const std::vector<NamedSpec>& specs) {
  std::vector<test::NamedKernel> kernels;
  for (const auto& [name, spec] : specs) {
    const EmittedKernel kernel = emitted(spec);
    kernels.push_back({name, kernel.source, kernel.entry});
  }
  for (const std::string_view target : {"sm_80", "sm_90a", "sm_100a"})
    test::compile_together(
        kernels, target,
        [&](std::span<const std::string> entries, const std::string& code, const std::string&) {
          CHECK(
              code.starts_with("\x7f"
                               "ELF"));
          if (target == "sm_90a")
            for (const std::string& entry : entries) check_order_of_loads(code, entry);
        });
}

TEST_CASE("every generated kernel compiles for each supported target") {
  compile_for_all_targets(all_specs());
}

// Kernels in whose machine code loads of the read-only path did stand before the wait.
TEST_CASE("kernels load nothing before they have waited for the one ahead") {
  for (const char* name :
       {"instancenorm_training_f32", "layernorm_training_bf16", "rmsnorm_training_f16"}) {
    INFO(name);
    const auto graph =
        graph_from_json(read_file(test::source_tree() + "/tests/corpus/" + name + ".json"), name);
    REQUIRE(graph);
    const auto plan = make_plan(**graph, {.architecture = "sm_90a"}, {}, nullptr);
    REQUIRE(plan);
    for (const auto& kernel : plan->data().kernels) {
      const auto code = compile_uncached({kernel.source, kernel.entry, "sm_90a"});
      REQUIRE(code);
      check_order_of_loads(*code, kernel.entry);
    }
  }
}

TEST_CASE("every pointwise mode has a formula that compiles in float and double") {
  compile_for_all_targets({{"every_pointwise_mode", every_pointwise_mode()}});
}

}  // namespace
}  // namespace sinter::golden
