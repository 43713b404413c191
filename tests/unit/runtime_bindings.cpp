#include <elf.h>

#include <cstring>
#include <type_traits>

#include "runtime/bindings.hpp"
#include "runtime/executable.hpp"
#include "support/catch.hpp"
#include "support/fake_machine_code.hpp"

using namespace sinter;

namespace {

PlanTensor tensor(std::string name, DataType type, std::int64_t elements) {
  PlanTensor t;
  t.name = std::move(name);
  t.type = type;
  t.dim = {elements};
  t.stride = {1};
  t.bytes = elements * info(type).bytes;
  return t;
}

struct Fixture {
  std::vector<PlanTensor> tensors = {tensor("x", f32, 4), tensor("w", f64, 2),
                                     tensor("none", f32, 0), tensor("y", f16, 4)};
  BindingTable table{tensors};
  alignas(16) char memory[64] = {};
  std::vector<void*> pointers = std::vector<void*>(4);

  Status resolve(std::vector<Binding> bindings) { return table.resolve(bindings, pointers); }
  std::vector<Binding> good() {
    return {{"y", memory},
            {"none", static_cast<void*>(nullptr)},
            {"x", memory + 16},
            {"w", memory + 32}};
  }
  Diagnostic error(std::vector<Binding> bindings) {
    const auto status = resolve(std::move(bindings));
    REQUIRE_FALSE(status);
    return status.error();
  }
};

PlanKernel kernel_of(std::vector<KernelArgument> arguments) {
  PlanKernel k;
  k.entry = "kernel";
  k.arguments = std::move(arguments);
  return k;
}

using Kind = KernelArgument::Kind;

}  // namespace

TEST_CASE_METHOD(Fixture, "bindings in any order reach their tensors") {
  REQUIRE(resolve(good()));
  CHECK(pointers == std::vector<void*>{memory + 16, memory + 32, nullptr, memory});
}

TEST_CASE_METHOD(Fixture, "a tensor without a binding is named") {
  auto bindings = good();
  bindings.pop_back();
  const Diagnostic d = error(bindings);
  CHECK(d.rule == Rule::binding_missing);
  CHECK(d.tensor == "w");
}

TEST_CASE_METHOD(Fixture, "a tensor without elements may be null but not left out") {
  auto bindings = good();
  bindings.erase(bindings.begin() + 1);
  CHECK(error(bindings).rule == Rule::binding_missing);
}

TEST_CASE_METHOD(Fixture, "a name that is not the graph's is refused with the names that are") {
  auto bindings = good();
  bindings.emplace_back("xx", memory);
  const Diagnostic d = error(bindings);
  CHECK(d.rule == Rule::binding_unknown);
  CHECK(d.tensor == "xx");
  CHECK(d.allowed == "x, w, none, y");
}

TEST_CASE_METHOD(Fixture, "a tensor that is bound twice is refused, null pointers included") {
  auto bindings = good();
  SECTION("to another pointer") { bindings.emplace_back("x", memory); }
  SECTION("to null twice") { bindings.emplace_back("none", static_cast<void*>(nullptr)); }
  CHECK(error(bindings).rule == Rule::binding_repeated);
}

TEST_CASE_METHOD(Fixture, "a uid or a position finds the tensor, too") {
  tensors[1].uid = -7;
  tensors[3].uid = 12;
  table = BindingTable(tensors);
  REQUIRE(resolve(
      {{Uid{12}, memory}, {Index{2}, memory}, {Index{0}, memory + 16}, {Uid{-7}, memory + 32}}));
  CHECK(pointers == std::vector<void*>{memory + 16, memory + 32, memory, memory});
  CHECK(error({{"w", memory}, {Uid{-7}, memory}}).rule == Rule::binding_repeated);
  for (const TensorKey key :
       {TensorKey(Uid{0}), TensorKey(Uid{13}), TensorKey(Index{4}), TensorKey(Index{-1})})
    CHECK(error({{key, memory}}).rule == Rule::binding_unknown);
  CHECK(error({{Uid{13}, memory}}).allowed == "-7, 12");
  CHECK(error({{Index{4}, memory}}).allowed == "0 to 3");
}

TEST_CASE_METHOD(Fixture, "memory that is too small is refused where its size is known") {
  auto bindings = good();
  bindings[2].bytes = 16;
  CHECK(resolve(bindings));
  bindings[2].bytes = 15;
  const Diagnostic d = error(bindings);
  CHECK(d.rule == Rule::binding_size);
  CHECK(d.tensor == "x");
  CHECK(d.seen == "15 bytes");
  CHECK(d.allowed == "16 or more");
  const auto too_small = Memory::allocate(Device::cpu(), 8);
  REQUIRE(too_small);
  bindings[2] = {"x", *too_small};
  CHECK(error(bindings).rule == Rule::binding_size);
}

TEST_CASE_METHOD(Fixture, "a name that is nearly right is guessed") {
  tensors[0].name = "q_proj";
  table = BindingTable(tensors);
  CHECK(error({{"q_prog", memory}}).fix == "did you mean 'q_proj'");
  CHECK(error({{"elsewhere", memory}}).fix.empty());
  tensors[0].name = "lr";
  table = BindingTable(tensors);
  CHECK(error({{"rl", memory}}).fix == "did you mean 'lr'");
  CHECK(error({{"LR", memory}}).fix == "did you mean 'lr'");
  CHECK(error({{"ww", memory}}).fix == "did you mean 'w'");
  CHECK(error({{"q", memory}}).fix.empty());
}

static_assert(!std::is_constructible_v<Binding, std::string&&, void*>);  // its name would dangle
static_assert(!std::is_constructible_v<TensorKey, int>);                 // is 0 a name, a uid?
static_assert(!std::is_constructible_v<TensorKey, std::nullptr_t>);

TEST_CASE_METHOD(Fixture, "null for a tensor with elements is refused") {
  auto bindings = good();
  bindings[2].pointer = nullptr;
  const Diagnostic d = error(bindings);
  CHECK(d.rule == Rule::binding_null);
  CHECK(d.tensor == "x");
}

TEST_CASE_METHOD(Fixture, "a pointer must be aligned as the graph says, to 16 bytes at most") {
  auto bindings = good();
  bindings[2].pointer = memory + 4;
  const Diagnostic d = error(bindings);
  CHECK(d.rule == Rule::binding_alignment);
  CHECK(d.tensor == "x");
  CHECK(d.allowed == "multiples of 16 bytes");
  CHECK(d.fix == "declare alignment 4 or less for the tensor");
  tensors[0].alignment = 4;
  CHECK(resolve(bindings));
  bindings[2].pointer = memory + 2;
  CHECK(error(bindings).rule == Rule::binding_alignment);
  tensors[0].alignment = 1;  // never less than the element's own size
  CHECK(error(bindings).allowed == "multiples of 4 bytes");
  tensors[0].alignment = 256;
  bindings[2].pointer = memory + 16;
  CHECK(resolve(bindings));
}

TEST_CASE("a workspace must be there, large enough and aligned, when one is needed") {
  alignas(256) static char memory[1024];
  CHECK(check_workspace({}, 0));
  CHECK(check_workspace({memory, 512}, 512));
  CHECK(check_workspace({memory + 256, 768}, 512));
  const auto rule = [](Workspace bad) { return check_workspace(bad, 512).error().rule; };
  CHECK(rule({}) == Rule::workspace_size);
  CHECK(rule({memory, 511}) == Rule::workspace_size);
  CHECK(rule({nullptr, 512}) == Rule::workspace_null);
  CHECK(rule({memory + 128, 512}) == Rule::workspace_alignment);
}

TEST_CASE("strided tensors in each other's gaps share no memory") {
  alignas(16) static float memory[64];
  const auto strided = [](const char* name, Dims dim, Dims stride, bool written) {
    PlanTensor t;
    t.name = name;
    t.type = f32;
    t.dim = dim;
    t.stride = stride;
    t.bytes = span_elements(dim, stride) * 4;
    t.written = written;
    return t;
  };
  const auto refused = [&](const PlanTensor& a, int at, const PlanTensor& b, int bt) {
    const PlanTensor tensors[] = {a, b};
    void* const pointers[] = {memory + at, memory + bt};
    const Status s = check_overlaps(tensors, pointers, {}, 0);
    return !s && s.error().rule == Rule::binding_overlap;
  };
  const auto q = strided("q", {4, 3}, {8, 1}, true), k = strided("k", {4, 5}, {8, 1}, true);
  CHECK_FALSE(refused(q, 0, k, 3));  // columns 0 to 2 and 3 to 7 of one matrix
  CHECK(refused(q, 0, k, 2));
  CHECK_FALSE(refused(k, 0, q, 5));
  CHECK(refused(k, 0, q, 6));  // around the end of a row
  const auto one = strided("one", {3}, {1}, false), row = strided("row", {8}, {1}, false);
  CHECK_FALSE(refused(q, 0, one, 11));  // in the gap of a row
  CHECK(refused(q, 0, one, 10));
  CHECK(refused(q, 0, row, 8));
  CHECK_FALSE(refused(q, 0, row, 27));   // behind it
  CHECK_FALSE(refused(one, 0, row, 0));  // both are read alone
  CHECK(refused(strided("w", {8}, {1}, true), 0, row, 7));
  CHECK_FALSE(refused(strided("w", {8}, {1}, true), 0, row, 8));
}

TEST_CASE("an argument struct is laid out as C++ lays it out") {
  struct Args {
    void* x;
    float s;
    double d;
    unsigned short h;
    void* workspace;
    float last;
  };
  PlanData plan;
  plan.tensors = {tensor("x", f32, 1)};
  plan.workspace_bytes = 4096;
  const float s = 1.5F, last = -2;
  const double d = 0.1;
  const auto bits = [](auto value) {
    std::int64_t b = 0;
    std::memcpy(&b, &value, sizeof value);
    return b;
  };
  const auto image = argument_image(plan, kernel_of({{Kind::tensor, 0, 8},
                                                     {Kind::scalar, bits(s), 4},
                                                     {Kind::scalar, bits(d), 8},
                                                     {Kind::scalar, 0x1234, 2},
                                                     {Kind::workspace, 256, 8},
                                                     {Kind::scalar, bits(last), 4}}));
  REQUIRE(image);
  REQUIRE(image->bytes.size() == sizeof(Args));
  Args args;
  std::memcpy(&args, image->bytes.data(), sizeof args);
  CHECK(args.s == s);
  CHECK(args.d == d);
  CHECK(args.h == 0x1234);
  CHECK(args.last == last);
  REQUIRE(image->patches.size() == 2);
  CHECK(image->patches[0].offset == offsetof(Args, x));
  CHECK_FALSE(image->patches[0].workspace);
  CHECK(image->patches[1].offset == offsetof(Args, workspace));
  CHECK(image->patches[1].workspace);
  CHECK(image->patches[1].value == 256);
}

TEST_CASE("tensor maps lie at multiples of 64 bytes in the argument struct") {
  struct alignas(64) Map {
    char bytes[kTensorMapBytes];
  };
  struct Args {
    void* x;
    Map first;
    float s;
    Map second;
    void* y;
  };
  PlanData plan;
  plan.tensors = {tensor("x", f16, 64)};
  plan.workspace_bytes = 512;
  PlanKernel k = kernel_of({{Kind::tensor, 0, 8},
                            {Kind::tensor_map, 1, kTensorMapBytes},
                            {Kind::scalar, 1, 4},
                            {Kind::tensor_map, 0, kTensorMapBytes},
                            {Kind::workspace, 0, 8}});
  k.maps = {{false, 0, {f16, {8, 8}, {16}, {8, 8}, 0, 0}},
            {true, 256, {tf32, {8}, {}, {8}, 32, 64}}};
  const auto image = argument_image(plan, k);
  REQUIRE(image);
  CHECK(image->bytes.size() == sizeof(Args));
  CHECK(image->patches.size() == 2);
  CHECK(image->patches[1].offset == offsetof(Args, y));
  REQUIRE(image->maps.size() == 2);
  CHECK(image->maps[0].offset == offsetof(Args, first));
  CHECK(image->maps[0].workspace);
  CHECK(image->maps[0].value == 256);
  CHECK(image->maps[0].pointer_offset == 64);
  CHECK(image->maps[1].offset == offsetof(Args, second));
  CHECK_FALSE(image->maps[1].workspace);
}

TEST_CASE("a tensor map that does not fit the plan is refused") {
  PlanData plan;
  plan.tensors = {tensor("x", f16, 64)};
  PlanKernel k = kernel_of({{Kind::tensor_map, 0, kTensorMapBytes}});
  k.maps = {{false, 0, {f16, {8, 8}, {16}, {8, 8}, 0, 0}}};
  REQUIRE(argument_image(plan, k));
  const auto refused = [&](auto change) {
    PlanData p = plan;
    PlanKernel bad = k;
    change(p, bad);
    const auto image = argument_image(p, bad);
    REQUIRE_FALSE(image);
    CHECK(image.error().rule == Rule::plan_format);
    CHECK(image.error().attribute == "kernel kernel, argument 0");
    return image.error().message();
  };
  refused([](auto&, auto& b) { b.arguments[0].value = 1; });
  refused([](auto&, auto& b) { b.arguments[0].value = -1; });
  refused([](auto&, auto& b) { b.arguments[0].bytes = 8; });
  refused([](auto&, auto& b) { b.maps[0].map.swizzle = 48; });
  refused([](auto&, auto& b) { b.maps[0].map.dim[1] = 9; });
  refused([](auto&, auto& b) { b.maps[0].workspace = true; });
  const std::string loose = refused([](auto& p, auto&) { p.tensors[0].alignment = 8; });
  CHECK(loose.find("alignment 8 of 'x'") != std::string::npos);
}

TEST_CASE("arguments that point outside the plan are refused") {
  PlanData plan;
  plan.tensors = {tensor("x", f32, 1)};
  plan.workspace_bytes = 512;
  for (const KernelArgument bad :
       {KernelArgument{Kind::tensor, 1, 8}, KernelArgument{Kind::tensor, -1, 8},
        KernelArgument{Kind::tensor, 0, 4}, KernelArgument{Kind::workspace, 513, 8},
        KernelArgument{Kind::workspace, -256, 8}, KernelArgument{Kind::scalar, 0, 3},
        KernelArgument{Kind::scalar, 0, 0}, KernelArgument{Kind::scalar, 0, -8}}) {
    const auto image = argument_image(plan, kernel_of({bad}));
    REQUIRE_FALSE(image);
    CHECK(image.error().rule == Rule::plan_format);
    CHECK(image.error().attribute == "kernel kernel, argument 0");
  }
  const std::vector<KernelArgument> many(kMaxArgumentBytes / 8 + 1, {Kind::tensor, 0, 8});
  CHECK_FALSE(argument_image(plan, kernel_of(many)));
}

TEST_CASE("machine code must be a CUDA ELF file whose sections lie inside it") {
  const std::string good = fake_machine_code();
  CHECK(check_machine_code(good).empty());
  for (std::size_t length = 0; length < good.size(); ++length)
    CHECK_FALSE(check_machine_code(good.substr(0, length)).empty());

  const auto with = [&](auto change, std::size_t extra = 0) {
    Elf64_Ehdr h;
    std::memcpy(&h, good.data(), sizeof h);
    change(h);
    std::string bytes(reinterpret_cast<const char*>(&h), sizeof h);
    bytes.resize(sizeof h + extra);
    return check_machine_code(bytes);
  };
  CHECK_FALSE(with([](auto& h) { h.e_ident[0] = 0; }).empty());
  CHECK_FALSE(with([](auto& h) { h.e_ident[EI_CLASS] = ELFCLASS32; }).empty());
  CHECK_FALSE(with([](auto& h) { h.e_machine = EM_X86_64; }).empty());
  const auto one_section = [](auto& h) {
    h.e_shoff = sizeof h;
    h.e_shnum = 1;
    h.e_shentsize = sizeof(Elf64_Shdr);
  };
  CHECK(with(one_section, sizeof(Elf64_Shdr)).empty());
  CHECK_FALSE(with(one_section, sizeof(Elf64_Shdr) - 1).empty());
  CHECK_FALSE(
      with([&](auto& h) { one_section(h), h.e_shoff = ~std::uint64_t{0} - 8; }, sizeof(Elf64_Shdr))
          .empty());
  CHECK_FALSE(with([&](auto& h) { one_section(h), h.e_shstrndx = 1; }, sizeof(Elf64_Shdr)).empty());

  std::string section = good;
  Elf64_Ehdr h;
  std::memcpy(&h, good.data(), sizeof h);
  one_section(h);
  std::memcpy(section.data(), &h, sizeof h);
  Elf64_Shdr s{};
  s.sh_type = SHT_PROGBITS;
  s.sh_offset = 64;
  s.sh_size = ~std::uint64_t{0};
  section.append(reinterpret_cast<const char*>(&s), sizeof s);
  CHECK_FALSE(check_machine_code(section).empty());
}
