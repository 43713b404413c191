// .npy files: the format itself, hostile files, and moves between packed and strided memory.
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <numeric>
#include <vector>

#include "array/file.hpp"
#include "array/npy.hpp"
#include "support/catch.hpp"

using namespace sinter;

namespace {

// A version 1 file with this header, without padding.
std::string npy(const std::string& header, const std::string& data, char major = 1) {
  std::string s = "\x93NUMPY";
  s += {major, 0, static_cast<char>(header.size() & 255), static_cast<char>(header.size() >> 8)};
  if (major == 2) s += {0, 0};
  return s + header + data;
}
std::string header(const std::string& descr, const std::string& shape,
                   const char* fortran = "False") {
  return "{'descr': '" + descr + "', 'fortran_order': " + fortran + ", 'shape': " + shape + ", }";
}
void check_refused(const std::string& file, const std::string& about) {
  const auto r = npy_from_bytes(file, "a.npy");
  REQUIRE_FALSE(r.ok());
  CHECK(r.error().rule == Rule::array_format);
  INFO(r.error().message());
  CHECK(r.error().message().find(about) != std::string::npos);
}
std::string temporary(const char* name) {
  return "/tmp/sinter_npy_" + std::to_string(getpid()) + "_" + name;
}

}  // namespace

TEST_CASE("arrays written as .npy have NumPy's layout and read back") {
  const std::string data("\x01\x02\x03\x04\x05\x06\x07\x08", 8);
  const std::string file = npy_to_bytes(f16, {2, 2}, data);
  CHECK(file.size() % 64 == 8);
  CHECK(file.substr(0, 10) == std::string("\x93NUMPY\x01\x00\x76\x00", 10));
  CHECK(file.substr(10, 58) == "{'descr': '<f2', 'fortran_order': False, 'shape': (2, 2), ");
  const auto r = npy_from_bytes(file);
  REQUIRE(r.ok());
  CHECK(r->descr == "<f2");
  CHECK(r->dim == Dims{2, 2});
  CHECK(r->bytes == data);
  CHECK(npy_from_bytes(npy_to_bytes(i8, {3}, "abc"))->dim == Dims{3});
  CHECK(npy_from_bytes(npy_to_bytes(f64, {0, 3}, ""))->dim == Dims{0, 3});
}

TEST_CASE("versions, key orders and spacings of other .npy writers are read") {
  CHECK(npy_from_bytes(
            npy("{\"shape\":(2,),\"descr\":\"<i4\",\"fortran_order\":False}\n\n", "12345678"))
            ->dim == Dims{2});
  CHECK(npy_from_bytes(npy(header("|u1", "()"), "x", 2))->dim == Dims{});
}

TEST_CASE("arrays that are not what they should be are refused by name") {
  check_refused("", "no .npy file");
  check_refused("\x93NUMPY\x01", "no .npy file");
  check_refused("PK\x03\x04 and so on, a zip", "no .npy file");
  check_refused(npy(header("<f4", "(1,)"), "1234", 3), "version 3");
  check_refused(npy(header(">f4", "(1,)"), "1234"), "big-endian");
  check_refused(npy(header("<f4", "(1,)", "True"), "1234"), "Fortran order");
  check_refused(npy(header("<c8", "(1,)"), "12345678"), "element type '<c8'");
  check_refused(npy(header("<f4", "(2,)"), "1234"), "8 bytes for dims [2]");
  check_refused(npy(header("<f4", "(1,)"), "12345"), "5 bytes of elements");
  check_refused(npy(header("<f8", "(1099511627776, 1099511627776)"), ""), "2^40 bytes");
  check_refused(npy(header("<f8", "(99999999999999999999,)"), ""), "above 2^40");
  check_refused(npy(header("<f8", "(-1,)"), ""), "no tuple");
  check_refused(npy(header("|u1", "(1,1,1,1,1,1,1,1,1)"), "x"), "more than 8 dims");
  check_refused(npy("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,)}", "1234"),
                "structured");
  check_refused(npy("{'descr': '<f4', 'shape': (1,)}", "1234"), "without descr");
  check_refused(npy("{'descr': '<f4', 'descr': '<f4', 'shape': (1,)}", "1234"), "'descr'");
  check_refused(npy(header("<f4", "(1,)") + "x", "1234"), "after the header");
  std::string cut = npy(header("<f4", "(1,)"), "1234");
  cut[8] = '\xff', cut[9] = '\xff';
  check_refused(cut, "65535 bytes");
}

TEST_CASE("every beginning of an array file is an error and never a crash") {
  const std::string file = npy_to_bytes(f32, {2, 3}, std::string(24, 'x'));
  for (std::size_t n = 0; n < file.size(); ++n)
    CHECK_FALSE(npy_from_bytes(std::string_view(file).substr(0, n)).ok());
}

TEST_CASE("an array file has to have the tensor's type and dims") {
  const std::string path = temporary("typed.npy");
  REQUIRE(write_npy(path, bf16, {2, 1}, "abcd").ok());
  CHECK(*read_npy(path, bf16, {2, 1}, "t") == "abcd");
  const auto type = read_npy(path, f16, {2, 1}, "t");
  CHECK(type.error().rule == Rule::array_format);
  CHECK(type.error().tensor == "t");
  CHECK(read_npy(path, bf16, {1, 2}, "t").error().seen.find("[2, 1]") != std::string::npos);
  std::remove(path.c_str());
  CHECK(read_npy(path, f16, {2, 1}, "t").error().rule == Rule::file_read);
  CHECK(read_file("/").error().rule == Rule::file_read);
  CHECK(write_file("/no/such/folder/x", "").error().rule == Rule::file_write);
}

TEST_CASE("bool arrays hold only 0 and 1 after reading") {
  const std::string path = temporary("bool.npy");
  REQUIRE(write_npy(path, boolean, {3}, std::string("\x00\x01\x07", 3)).ok());
  CHECK(*read_npy(path, boolean, {3}, "t") == std::string("\x00\x01\x01", 3));
  std::remove(path.c_str());
}

TEST_CASE("scatter and gather move between packed order and strides") {
  const Dims dim = {2, 3, 4}, stride = {1, 10, 2};
  std::vector<std::uint16_t> packed(24),
      strided(static_cast<std::size_t>(span_elements(dim, stride)), 99);
  std::iota(packed.begin(), packed.end(), std::uint16_t{100});
  scatter(packed.data(), 2, dim, stride, strided.data());
  for (int i = 0; i < 2; ++i)
    for (int j = 0; j < 3; ++j)
      for (int k = 0; k < 4; ++k)
        CHECK(strided[static_cast<std::size_t>(i + 10 * j + 2 * k)] == 100 + 12 * i + 4 * j + k);
  CHECK(strided[8] == 99);  // a gap is not touched
  std::vector<std::uint16_t> back(24);
  gather(strided.data(), 2, dim, stride, back.data());
  CHECK(back == packed);

  std::vector<std::uint64_t> row = {5}, broadcast(6);
  gather(row.data(), 8, {2, 3}, {0, 0}, broadcast.data());
  CHECK(broadcast == std::vector<std::uint64_t>(6, 5));
  scatter(nullptr, 4, {0, 3}, {3, 1}, nullptr);
  scatter(nullptr, 4, {3, 0}, {1, 1}, nullptr);
}
