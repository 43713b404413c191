// A header is text that somebody else wrote: it is parsed by a grammar of its own, and its extents
// are believed only where the bytes behind it agree.
#include "array/npy.hpp"

#include <algorithm>
#include <cctype>
#include <cstring>

#include "array/file.hpp"

namespace sinter {
namespace {

constexpr std::string_view kMagic{"\x93NUMPY", 6};
constexpr std::size_t kMaxFile = std::size_t{1} << 40;
constexpr std::size_t kMaxHeader = std::size_t{1} << 16;

Diagnostic wrong(const std::string& path, std::string seen, std::string allowed) {
  Diagnostic d;
  d.rule = Rule::array_format;
  d.attribute = path.empty() ? "array" : "file '" + path + "'";
  d.seen = std::move(seen);
  d.allowed = std::move(allowed);
  return d;
}

// The header is the literal of a Python dict with three known keys.
class HeaderParser {
 public:
  explicit HeaderParser(std::string_view text) : text_(text) {}

  std::string descr;
  bool fortran = false;
  Dims dim;
  std::string problem;

  bool parse() {
    bool seen[3] = {};
    if (!expect('{')) return false;
    while (!accept('}')) {
      std::string key;
      if (!quoted(key) || !expect(':')) return false;
      const int which = key == "descr" ? 0 : key == "fortran_order" ? 1 : key == "shape" ? 2 : -1;
      if (which < 0 || seen[which]) return say("the key '" + key + "'");
      seen[which] = true;
      if (!(which == 0 ? element() : which == 1 ? boolean() : shape())) return false;
      if (accept(',')) continue;
      if (!expect('}')) return false;
      break;
    }
    skip();
    if (at_ != text_.size()) return say("text after the header");
    return (seen[0] && seen[1] && seen[2]) || say("a header without descr, fortran_order or shape");
  }

 private:
  bool say(std::string what) {
    if (problem.empty()) problem = std::move(what);
    return false;
  }
  void skip() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t'))
      ++at_;
  }
  bool accept(char c) {
    skip();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  bool expect(char c) {
    return accept(c) ||
           say(std::string("a header without '") + c + "' at byte " + std::to_string(at_));
  }
  bool quoted(std::string& out) {
    skip();
    const char quote = at_ < text_.size() ? text_[at_] : ' ';
    if (quote != '\'' && quote != '"') return say("a header without a quoted key");
    const auto end = text_.find(quote, at_ + 1);
    if (end == std::string_view::npos) return say("a header that is cut off");
    out = text_.substr(at_ + 1, end - at_ - 1);
    at_ = end + 1;
    return true;
  }
  bool element() {
    skip();
    if (at_ < text_.size() && text_[at_] == '[') return say("a structured data type");
    return quoted(descr);
  }
  bool boolean() {
    skip();
    for (std::string_view word : {"True", "False"})
      if (text_.substr(at_).starts_with(word)) {
        fortran = word == "True";
        at_ += word.size();
        return true;
      }
    return say("a fortran_order that is neither True nor False");
  }
  bool shape() {
    if (!expect('(')) return false;
    while (!accept(')')) {
      skip();
      std::int64_t n = 0;
      const std::size_t begin = at_;
      for (; at_ < text_.size() && std::isdigit(static_cast<unsigned char>(text_[at_])); ++at_) {
        if (n > (std::int64_t{1} << 40)) return say("an extent above 2^40");
        n = 10 * n + (text_[at_] - '0');
      }
      if (at_ == begin) return say("a shape that is no tuple of extents");
      if (dim.size() == kMaxRank) return say("more than 8 dims");
      dim.push_back(n);
      if (accept(',')) continue;
      if (!expect(')')) return false;
      break;
    }
    return true;
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

// Element bytes of the types that GRAPH_JSON.md knows; 0 for the others.
int descr_bytes(std::string_view descr) {
  for (auto known : {"<f8", "<f4", "<f2", "<u2", "|u1", "|i1", "<i4", "<i8", "|b1"})
    if (descr == known) return descr[2] - '0';
  return 0;
}

// Runs of the innermost dim, each with its place in the packed and in the strided memory.
template <class Move>
void for_each_run(const Dims& dim, const Dims& stride, Move&& move) {
  const std::int64_t run = dim.empty() ? 1 : dim.back();
  const std::int64_t runs = run > 0 ? count(dim) / run : 0;
  Dims index = Dims::filled(dim.size(), 0);
  std::int64_t offset = 0;
  for (std::int64_t r = 0; r < runs; ++r) {
    move(r * run, offset, run, dim.empty() ? 1 : stride.back());
    for (int i = dim.size() - 2; i >= 0; --i) {
      offset += stride[i];
      if (++index[i] < dim[i]) break;
      offset -= stride[i] * dim[i];
      index[i] = 0;
    }
  }
}

template <class Element>
void move_elements(const char* from, char* to, const Dims& dim, const Dims& stride, bool scatter) {
  const auto* source = reinterpret_cast<const Element*>(from);
  auto* target = reinterpret_cast<Element*>(to);
  for_each_run(dim, stride,
               [&](std::int64_t packed, std::int64_t strided, std::int64_t n, std::int64_t step) {
                 const Element* s = source + (scatter ? packed : strided);
                 Element* t = target + (scatter ? strided : packed);
                 if (step == 1) {
                   std::memcpy(t, s, static_cast<std::size_t>(n) * sizeof(Element));
                   return;
                 }
                 for (std::int64_t i = 0; i < n; ++i)
                   if (scatter)
                     t[i * step] = s[i];
                   else
                     t[i] = s[i * step];
               });
}

void move_all(const void* from, void* to, int bytes, const Dims& dim, const Dims& stride,
              bool scatter) {
  const auto* f = static_cast<const char*>(from);
  auto* t = static_cast<char*>(to);
  switch (bytes) {
    case 1:
      return move_elements<std::uint8_t>(f, t, dim, stride, scatter);
    case 2:
      return move_elements<std::uint16_t>(f, t, dim, stride, scatter);
    case 4:
      return move_elements<std::uint32_t>(f, t, dim, stride, scatter);
    default:
      return move_elements<std::uint64_t>(f, t, dim, stride, scatter);
  }
}

// ---- the parts of a file: prefix, header, elements

constexpr std::size_t kPrefix = 12;  // magic, version, and the header's length in either version

Diagnostic cut_off(const std::string& path, std::size_t header) {
  return wrong(path, "a header of " + std::to_string(header) + " bytes", "one within the file");
}

// Bytes from the begin of the file to its elements, as its first kPrefix bytes say.
Result<std::size_t> header_bytes(std::string_view prefix, const std::string& path) {
  if (!prefix.starts_with(kMagic) || prefix.size() < 10)
    return wrong(path, "no .npy file", "a file that begins with \\x93NUMPY");
  const auto byte = [&](std::size_t i) {
    return static_cast<std::size_t>(static_cast<unsigned char>(prefix[i]));
  };
  const std::size_t major = byte(6);
  if (major != 1 && major != 2)
    return wrong(path, "version " + std::to_string(major), "version 1 or 2");
  const std::size_t begin = major == 1 ? 10 : 12;
  if (prefix.size() < begin) return wrong(path, "a header that is cut off", "");
  const std::size_t length = major == 1 ? byte(8) | byte(9) << 8
                                        : byte(8) | byte(9) << 8 | byte(10) << 16 | byte(11) << 24;
  if (length > kMaxHeader) return cut_off(path, length);
  return begin + length;
}

// `begin`: the file up to its elements. The array has no elements yet.
Result<NpyArray> parse_header(std::string_view begin, const std::string& path) {
  HeaderParser header(begin.substr(begin[6] == 1 ? 10 : 12));
  if (!header.parse()) return wrong(path, header.problem, "a header as NumPy writes it");
  if (header.fortran)
    return wrong(path, "Fortran order", "C order; save numpy.ascontiguousarray(x)");
  if (header.descr.starts_with('>'))
    return wrong(path, "big-endian elements '" + header.descr + "'", "little-endian elements");
  if (descr_bytes(header.descr) == 0)
    return wrong(path, "element type '" + header.descr.substr(0, 40) + "'",
                 "<f8, <f4, <f2, <u2, |u1, |i1, <i4, <i8 or |b1");
  return NpyArray{std::move(header.descr), header.dim, {}};
}

// What the header promises; above kMaxFile where it promises too much.
std::size_t element_bytes(const NpyArray& array) {
  auto n = static_cast<std::size_t>(descr_bytes(array.descr));
  for (auto d : array.dim)
    n = d > 0 && n > kMaxFile / static_cast<std::size_t>(d) ? kMaxFile + 1
                                                            : n * static_cast<std::size_t>(d);
  return n;
}

std::string size_allowed(const NpyArray& array, std::size_t n) {
  return n > kMaxFile ? "a size within 2^40 bytes"
                      : std::to_string(n) + " bytes for dims " + to_string(array.dim);
}

// Reads no more than the header of an array of this type and these dims promises.
Result<NpyArray> read_array(const std::string& path, DataType type, const Dims& dim) {
  auto file = InputFile::open(path);
  SINTER_TRY(file);
  auto begin = file->read(kPrefix);
  SINTER_TRY(begin);
  const auto length = header_bytes(*begin, path);
  SINTER_TRY(length);
  // A header of version 1 without anything in it ends before the prefix does.
  auto rest = file->read(std::max(*length, kPrefix) - kPrefix);
  SINTER_TRY(rest);
  std::string header = *begin + *rest;
  if (header.size() < *length) return cut_off(path, *length);
  auto array = parse_header(std::string_view(header).substr(0, *length), path);
  SINTER_TRY(array);
  if (array->descr != npy_descr(type) || array->dim != dim)
    return wrong(path, "'" + array->descr + "' of dims " + to_string(array->dim),
                 "'" + std::string(npy_descr(type)) + "' (" + std::string(name(type)) +
                     ") of dims " + to_string(dim));
  const std::size_t n = element_bytes(*array);
  if (n > kMaxFile) return wrong(path, "dims " + to_string(dim), size_allowed(*array, n));
  auto bytes = file->read(n + 1);  // one more, to see whether the file ends
  SINTER_TRY(bytes);
  if (bytes->size() != n)
    return wrong(path,
                 (bytes->size() > n ? "more than " : "") +
                     std::to_string(std::min(bytes->size(), n)) + " bytes of elements",
                 size_allowed(*array, n));
  array->bytes = std::move(*bytes);
  return array;
}

}  // namespace

std::string_view npy_descr(DataType type) {
  switch (type) {
    case DataType::f64:
      return "<f8";
    case DataType::f32:
      return "<f4";
    case DataType::f16:
      return "<f2";
    case DataType::bf16:
      return "<u2";
    case DataType::i8:
      return "|i1";
    case DataType::i32:
      return "<i4";
    case DataType::i64:
      return "<i8";
    case DataType::boolean:
      return "|b1";
    default:
      return "|u1";  // u8, and the bits of f8e4m3, f8e5m2, f8e8m0, f4e2m1
  }
}

Result<NpyArray> npy_from_bytes(std::string_view file, const std::string& path) {
  const auto length = header_bytes(file.substr(0, kPrefix), path);
  SINTER_TRY(length);
  if (*length > file.size()) return cut_off(path, *length);
  auto array = parse_header(file.substr(0, *length), path);
  SINTER_TRY(array);
  const std::string_view data = file.substr(*length);
  const std::size_t n = element_bytes(*array);
  if (n != data.size())
    return wrong(path, std::to_string(data.size()) + " bytes of elements", size_allowed(*array, n));
  array->bytes = data;
  return array;
}

std::string npy_to_bytes(DataType type, const Dims& dim, std::string_view packed) {
  std::string shape = "(";
  for (int i = 0; i < dim.size(); ++i)
    shape += std::to_string(dim[i]) + (i + 1 < dim.size() ? ", " : dim.size() == 1 ? "," : "");
  std::string header = "{'descr': '" + std::string(npy_descr(type)) +
                       "', 'fortran_order': False, 'shape': " + shape + "), }";
  const std::size_t used = kMagic.size() + 4 + header.size() + 1;
  header.append((64 - used % 64) % 64, ' ');  // the elements begin at a multiple of 64
  header += '\n';
  std::string file(kMagic);
  file += {'\x01', '\x00', static_cast<char>(header.size() & 255),
           static_cast<char>(header.size() >> 8)};
  file += header;
  file += packed;
  return file;
}

Result<std::string> read_npy(const std::string& path, DataType type, const Dims& dim,
                             std::string_view tensor) {
  auto array = read_array(path, type, dim);
  if (!array) {
    Diagnostics errors = array.errors();
    for (auto& d : errors) d.tensor = tensor;
    return errors;
  }
  if (type == DataType::boolean)  // a kernel may rely on 0 and 1
    for (char& c : array->bytes) c = c != 0;
  return std::move(array->bytes);
}

Status write_npy(const std::string& path, DataType type, const Dims& dim, std::string_view packed) {
  return write_file(path, npy_to_bytes(type, dim, packed));
}

void scatter(const void* packed, int element_bytes, const Dims& dim, const Dims& stride,
             void* strided) {
  move_all(packed, strided, element_bytes, dim, stride, true);
}

void gather(const void* strided, int element_bytes, const Dims& dim, const Dims& stride,
            void* packed) {
  move_all(strided, packed, element_bytes, dim, stride, false);
}

}  // namespace sinter
