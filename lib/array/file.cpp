// Plain stdio with the reasons of the system in the errors.
#include "array/file.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

namespace sinter {
namespace {

struct CloseFile {
  void operator()(std::FILE* f) const { std::fclose(f); }
};
using File = std::unique_ptr<std::FILE, CloseFile>;

Diagnostic failure(const std::string& path, std::string seen, std::string allowed = {}) {
  Diagnostic d;
  d.rule = Rule::file_error;
  d.attribute = "file '" + path + "'";
  d.seen = std::move(seen);
  d.allowed = std::move(allowed);
  return d;
}

}  // namespace

Result<std::string> read_file(const std::string& path, std::size_t most) {
  const File file(std::fopen(path.c_str(), "rb"));
  if (!file) return failure(path, std::strerror(errno));
  struct stat status {};
  if (fstat(fileno(file.get()), &status) != 0) return failure(path, std::strerror(errno));
  if (S_ISDIR(status.st_mode)) return failure(path, "a directory");
  const std::string limit = "at most " + std::to_string(most) + " bytes";
  const auto stated = S_ISREG(status.st_mode) ? static_cast<std::size_t>(status.st_size) : 0;
  if (stated > most) return failure(path, std::to_string(stated) + " bytes", limit);
  // A pipe states no size, so the end is found by reading.
  std::string bytes;
  bytes.resize(stated);
  std::size_t have = 0;
  for (;;) {
    if (have == bytes.size()) bytes.resize(have + (std::size_t{1} << 16));
    const std::size_t n = std::fread(bytes.data() + have, 1, bytes.size() - have, file.get());
    have += n;
    if (n == 0) break;
    if (have > most) return failure(path, "more", limit);
  }
  if (std::ferror(file.get())) return failure(path, std::strerror(errno));
  bytes.resize(have);
  return bytes;
}

Status write_file(const std::string& path, std::string_view bytes) {
  struct stat status {};
  const bool replace = stat(path.c_str(), &status) != 0 || S_ISREG(status.st_mode);
  // A pipe or a device cannot be replaced by a rename.
  const std::string target =
      replace ? path + ".part" + std::to_string(static_cast<long>(getpid())) : path;
  File file(std::fopen(target.c_str(), "wb"));
  if (!file) return failure(path, std::strerror(errno));
  const bool written = std::fwrite(bytes.data(), 1, bytes.size(), file.get()) == bytes.size();
  const bool closed = std::fclose(file.release()) == 0;
  if (written && closed && (!replace || std::rename(target.c_str(), path.c_str()) == 0))
    return Done{};
  const int error = errno;
  if (replace) std::remove(target.c_str());
  return failure(path, std::strerror(error));
}

}  // namespace sinter
